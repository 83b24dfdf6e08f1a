"""Keeps the libraries under lm-eval away from the network, from the home folder and from the console."""

from __future__ import annotations

import os
import sys
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


def go_offline(cache: Path) -> None:
    """Set up this process for lm-eval: no network, and every cache under `cache`.

    Call it before lm_eval is imported (and torch, which imports tqdm). Where the libraries are loaded already, in a
    reused worker process, the settings that matter are changed in place.
    """
    os.environ.update(OFFLINE)
    folders = {"HF_HOME": cache, "HF_DATASETS_CACHE": cache / "datasets", "HF_MODULES_CACHE": cache / "modules"}
    for name, folder in folders.items():
        folder.mkdir(parents=True, exist_ok=True)
        os.environ[name] = str(folder)
    if (hub := sys.modules.get("huggingface_hub.constants")) is not None:
        hub.HF_HUB_OFFLINE = True  # type: ignore[attr-defined]
    if (datasets := sys.modules.get("datasets.config")) is not None:
        datasets.HF_HUB_OFFLINE = True  # type: ignore[attr-defined]
        datasets.HF_DATASETS_CACHE = cache / "datasets"  # type: ignore[attr-defined]
        datasets.HF_MODULES_CACHE = cache / "modules"  # type: ignore[attr-defined]
