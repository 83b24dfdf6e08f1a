"""Keeps the libraries under lm-eval away from the network, from the home folder and from the console."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_EVALUATE_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    # lm-eval resamples in a process pool unless this is set; the pool costs more than it saves here.
    "DISABLE_MULTIPROC": "1",
    # The run's own progress is shown instead of bars.
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "TQDM_DISABLE": "1",
}


@contextmanager
def offline(cache: Path) -> Iterator[None]:
    """While the block runs: no network for the libraries under lm-eval, and every cache of theirs under `cache`.

    Import lm_eval inside the block (and torch, which imports tqdm). Where the libraries are loaded already, in a reused
    worker process, the settings that they read at import are changed in place.
    """
    folders = {"HF_HOME": cache, "HF_DATASETS_CACHE": cache / "datasets", "HF_MODULES_CACHE": cache / "modules"}
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    settings = OFFLINE | {name: str(folder) for name, folder in folders.items()}
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    loaded = [
        ("huggingface_hub.constants", "HF_HUB_OFFLINE", True),
        ("datasets.config", "HF_HUB_OFFLINE", True),
        ("datasets.config", "HF_DATASETS_CACHE", folders["HF_DATASETS_CACHE"]),
        ("datasets.config", "HF_MODULES_CACHE", folders["HF_MODULES_CACHE"]),
    ]
    for module, name, value in loaded:
        if module in sys.modules:
            setattr(sys.modules[module], name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = old
