"""A driver of the experiment whose store tells what the workers do: save, restore, evaluate; and takes its time.

    python operations/soak/watched_run.py LEDGER PAUSE --scale smoke --prefix PREFIX …

The campaign that kills looks into the ledger, a folder, for when to strike; `PAUSE` seconds before every such
operation make these moments long enough to be hit.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from marin.storage import Store, WrappedStore, open_store

ROOT = Path(__file__).resolve().parents[2]
T = TypeVar("T")

READS, WRITES = ("read", "read_range", "open"), ("create", "put", "writer")
SAVE, RESTORE, EVALUATION = "save", "restore", "evaluation"


class WatchedStore(WrappedStore):
    """Notes what checkpoints and held-out data are used for, and pauses at each use. Pickles."""

    def __init__(self, store: Store, ledger: str, pause: float) -> None:
        super().__init__(store)
        self.ledger = ledger
        self.pause = pause

    def around(self, kind: str, key: str, operation: Callable[[], T]) -> T:
        self._tell(doing(kind, key))
        return operation()

    def local_path(self, key: str) -> Path | None:
        """Whoever asks reads the file past the store."""
        self._tell(doing("open", key))
        return super().local_path(key)

    def _tell(self, what: str) -> None:
        if what:
            (Path(self.ledger) / f"{what}.{os.getpid()}.{uuid.uuid4().hex}").touch()
            time.sleep(self.pause)


def doing(kind: str, key: str) -> str:
    """What an operation on a key is a part of, or an empty text."""
    if "/state/" in key and "/checkpoints/" in key:
        return RESTORE if kind in READS else SAVE if kind in WRITES else ""
    return EVALUATION if "/heldout-" in key and kind in READS else ""


def main(arguments: list[str]) -> None:
    """Run the experiment with that store."""
    from marin.cli import experiment

    ledger, pause, *flags = arguments
    spec = importlib.util.spec_from_file_location("exp_535b", ROOT / "experiments" / "exp_535b.py")
    assert spec is not None
    assert spec.loader is not None
    graph: Any = importlib.util.module_from_spec(spec)
    sys.modules["exp_535b"] = graph
    spec.loader.exec_module(graph)
    experiment.open_store = lambda url: watched(url, ledger, float(pause))  # type: ignore[assignment]
    experiment.experiment_main(graph.build, default="smoke", argv=flags)


def watched(url: Any, ledger: str, pause: float) -> Store:
    """A store of the driver and of its workers. Their pickles name this module, which they must find by that name."""
    from operations.soak.watched_run import WatchedStore as Named

    return Named(open_store(url), ledger, pause)


if __name__ == "__main__":
    main(sys.argv[1:])
