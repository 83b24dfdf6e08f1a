"""A run that is killed again and again in the middle of saves and restores."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from marin.checkpoint.completeness import survey
from marin.checkpoint.ranks import Ranks
from marin.checkpoint.reading import opener, stored_forms
from marin.checkpoint.store import CheckpointStore
from tests.checkpoint.holder import holder
from tests.training.rank_pool import VARIABLES, shared_pool
from tests.training.test_loop import curve
from tests.training.toy import ToyTask, toy_training, train_toy

pytestmark = pytest.mark.slow

SAVE, RESTORE = "save", "restore"
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.training.killed_imports"])


@dataclass(frozen=True)
class Killed:
    """A life that kills itself with SIGKILL at its `after`-th dealing with the store, writing or reading."""

    task: ToyTask
    kind: str
    after: int


class _Deadly:
    """A stream that dies in the middle of its `after`-th use."""

    def __init__(self, stream: Any, count: Any) -> None:
        self._stream = stream
        self._count = count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> _Deadly:
        self._stream.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._count()
        self._stream.__exit__(*error)

    def write(self, data: Any) -> int:
        half = len(data) // 2
        self._stream.write(data[:half])
        self._count()
        return half + int(self._stream.write(data[half:]))

    def read(self, size: int = -1) -> bytes:
        self._count()
        return bytes(self._stream.read(size))


def live_and_die(case: Killed) -> None:
    """One rank's life up to its kill."""
    from marin.execution.running.context import State
    from marin.storage import Store

    for name, value in zip(VARIABLES, ("0", "1", "0", "1", "127.0.0.1", "0"), strict=True):
        os.environ[name] = value
    torch.set_num_threads(1)
    seen = [0]

    def count() -> None:
        seen[0] += 1
        if seen[0] == case.after:
            os.kill(os.getpid(), signal.SIGKILL)

    if case.kind == SAVE:
        write, create, delete = State.write, State.create, type(holder(case.task.prefix).state.store).delete

        def deadly_create(self: State, name: str, data: bytes) -> None:
            count()
            create(self, name, data)
            count()

        def deadly_delete(self: Store, key: str) -> None:
            count()
            delete(self, key)

        State.write = lambda self, name: _Deadly(write(self, name), count)  # type: ignore[method-assign, assignment, return-value]
        State.create = deadly_create  # type: ignore[method-assign]
        type(holder(case.task.prefix).state.store).delete = deadly_delete  # type: ignore[method-assign]
    else:
        kind = type(holder(case.task.prefix).state.store)
        opened = kind.open
        kind.open = lambda self, key: _Deadly(opened(self, key), count)  # type: ignore[method-assign, assignment, return-value]
    train_toy(case.task)


def assert_every_listed_checkpoint_is_readable(prefix: str, epoch: int) -> None:
    run = holder(prefix, epoch=epoch)
    store = CheckpointStore(run.state, check_lease=run.check_lease, ranks=Ranks.alone())
    for found in survey(run.state).complete:
        assert store.damage(found) is None
        read = opener(run.state.store, found.keys)
        dtypes = {name: getattr(torch, form.dtype.removeprefix("torch.")) for name, form in stored_forms(read).items()}
        store.load(
            found, {name: torch.empty(form.shape, dtype=dtypes[name]) for name, form in stored_forms(read).items()}
        )
        assert store.read_progress(found).step == found.step


def test_a_run_killed_in_saves_and_restores_ends_with_the_undisturbed_curve(tmp_path: Path) -> None:
    training = toy_training(checkpoints=replace(toy_training().checkpoints, every_steps=2))
    straight = shared_pool().run(train_toy, ToyTask(str(tmp_path / "straight"), training=training), 1)[0]
    task = ToyTask(str(tmp_path / "killed"), training=training)
    draw = random.Random(11)
    kills = [(SAVE, draw.randint(2, 40)), *((draw.choice((SAVE, RESTORE)), draw.randint(2, 120)) for _ in range(5))]
    endings = []
    for epoch, (kind, after) in enumerate(kills, 1):
        process = CONTEXT.Process(target=live_and_die, args=(Killed(replace(task, epoch=epoch), kind, after),))
        process.start()
        process.join(120)
        endings.append((kind, after, process.exitcode))
        assert_every_listed_checkpoint_is_readable(task.prefix, epoch)
    assert all(code == -signal.SIGKILL for *_, code in endings), endings
    last = shared_pool().run(train_toy, replace(task, epoch=len(kills) + 1), 1)[0]
    assert curve(last) == curve(straight)
    assert last.weights == straight.weights
    assert_every_listed_checkpoint_is_readable(task.prefix, len(kills) + 1)
