"""Saves in the background and restores, again and again over a disk that is full now and then.

    python operations/soak/saves.py --minutes 5

A round saves and restores one state some forty times, with random sizes, random failures of any file and now and then
a permanent checkpoint. What must hold: whatever is listed can be read and is the state of its step, a failure costs
attempts only, permanent checkpoints stay, and the memory of the process does not grow.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402  found in this checkout, as what follows
from torch import Tensor  # noqa: E402

from marin.checkpoint.background import BackgroundSaver, Failed, Saved  # noqa: E402
from marin.checkpoint.config import CheckpointPolicy  # noqa: E402
from marin.checkpoint.progress import Progress  # noqa: E402
from marin.checkpoint.ranks import Ranks  # noqa: E402
from marin.checkpoint.store import CheckpointStore  # noqa: E402
from marin.execution.running.context import State  # noqa: E402
from operations.soak.campaign import Round, play_campaign  # noqa: E402
from tests.checkpoint.holder import holder  # noqa: E402

SAVES = 40
WARM = 10
"""Saves after which the memory of the process is taken as its level."""
GROWTH_SHARE = 0.5
"""Of the state: how much the level may rise within a round. A leak of one copy a save would be thirty states."""


class FullNowAndThen:
    """The state of a run on a disk where any file can fail to be written."""

    def __init__(self, state: State, one: Round) -> None:
        self._state = state
        self._round = one
        self.failing = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)

    def _may_fail(self) -> None:
        if self.failing and self._round.random.random() < 0.06:
            self._round.counts["failures"] += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    @contextmanager
    def write(self, name: str) -> Iterator[Any]:
        """A writer that may fail before its first byte or when all are there."""
        self._may_fail()
        with self._state.write(name) as stream:
            yield stream
            self._may_fail()

    def create(self, name: str, data: bytes) -> None:
        """A finish mark that may not be made."""
        self._may_fail()
        self._state.create(name, data)


def play(one: Round) -> None:
    """One process' worth of saves and restores."""
    torch.set_num_threads(1)
    run = holder(one.prefix)
    state = FullNowAndThen(run.state, one)
    store = CheckpointStore(state, check_lease=run.check_lease, ranks=Ranks.alone())
    policy = CheckpointPolicy(retry_seconds=0.001, rehearse=False)
    saver = BackgroundSaver(store, Ranks.alone(), policy, read_back_first=True)
    tensors = {f"model.{n}": torch.zeros(one.random.randint(1, 1 << 19)) for n in range(12)}
    levels = []
    for step in range(1, SAVES + 1):
        permanent = step % 9 == 0
        for tensor in tensors.values():
            tensor.fill_(step)
        saver.begin(tensors, progress_at(step), permanent=permanent, before=lambda: None)
        for tensor in tensors.values():
            tensor.fill_(-1)  # training goes on
        _until_saved(one, saver)
        _look(one, store, tensors, step)
        gc.collect()
        levels.append(int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    one.counts["saves"] += SAVES
    kept = {found.step for found in store.survey().complete}
    wanted = {step for step in range(1, SAVES + 1) if step % 9 == 0} | {SAVES, SAVES - 1}
    one.expect(kept == wanted, f"steps {sorted(kept)} are there, and {sorted(wanted)} should be")
    size = sum(tensor.nbytes for tensor in tensors.values())
    rose = min(levels[-5:]) - min(levels[WARM - 5 : WARM])
    one.expect(rose < GROWTH_SHARE * size, f"memory rose by {rose:,} bytes over {SAVES} saves of {size:,} bytes")


def _until_saved(one: Round, saver: BackgroundSaver) -> None:
    while saver.busy:
        saver.pause()
        event = saver.poll().event
        one.counts["attempts"] += isinstance(event, Saved | Failed)


def _look(one: Round, store: CheckpointStore, tensors: dict[str, Tensor], step: int) -> None:
    """The newest is that of `step`, undamaged, and holds the values of its moment."""
    found = store.newest()
    one.expect(found is not None and found.step == step, f"after step {step} was saved the newest is {found}")
    assert found is not None
    store.load(found, tensors)
    wrong = [name for name, tensor in tensors.items() if not bool((tensor == step).all())]
    one.expect(not wrong, f"step {step} came back with other values in {wrong}")


def progress_at(step: int) -> Progress:
    """A run that stands at a step."""
    return Progress(
        step=step,
        next_sequence=step,
        tokens=step,
        updates=step,
        skipped_in_a_row=0,
        metrics=(),
        validations=(),
        random_states=(),
        identity={},
        parts={},
    )


def main(arguments: list[str] | None = None) -> int:
    """Play the campaign."""
    return play_campaign("saves", __doc__ or "", play, arguments)


if __name__ == "__main__":
    sys.exit(main())
