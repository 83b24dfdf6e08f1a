"""Saves that are written while training goes on: what they hold, what a store in trouble does to them, their memory."""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from marin.checkpoint.background import BackgroundSaver, Failed, Saved
from marin.checkpoint.config import CheckpointPolicy
from marin.checkpoint.errors import CheckpointError, NotFinite
from marin.checkpoint.ranks import Ranks
from marin.checkpoint.rehearsal import RehearsalFailed, rehearse_restore
from marin.checkpoint.staging import HostCopy
from marin.checkpoint.store import CheckpointStore
from marin.execution import LeaseLost
from marin.execution.running.context import Run
from tests.checkpoint.holder import holder
from tests.checkpoint.test_store import progress_at, store_of, trained


class Trouble:
    """A state that does to its writes and finish marks what `act` says; `act` gets the file's name."""

    def __init__(self, run: Run, act: Callable[[str], None]) -> None:
        self._state = run.state
        self._act = act

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)

    @contextmanager
    def write(self, name: str) -> Iterator[Any]:
        self._act(name)
        with self._state.write(name) as stream:
            yield stream

    def create(self, name: str, data: bytes) -> None:
        self._act(name)
        self._state.create(name, data)


class Clock:
    """Time that only the test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def saver_of(
    run: Run, act: Callable[[str], None] = lambda name: None, clock: Callable[[], float] = time.monotonic, **policy: Any
) -> BackgroundSaver:
    store = CheckpointStore(Trouble(run, act), check_lease=run.check_lease, ranks=Ranks.alone(), keep_last=2)
    rehearse = policy.pop("rehearse", False)
    return BackgroundSaver(store, Ranks.alone(), CheckpointPolicy(**policy), read_back_first=rehearse, now=clock)


def outcome(saver: BackgroundSaver) -> Saved | Failed:
    """What the attempt under way comes to."""
    for _ in range(500):
        saver.pause()
        if event := saver.poll().event:
            return event
    raise AssertionError("the attempt does not end")


def full_disk(times: int) -> Callable[[str], None]:
    """A disk that is full at so many writes of tensors."""
    left = [times]

    def act(name: str) -> None:
        if name.endswith(".distcp") and left[0]:
            left[0] -= 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    return act


def nothing() -> None:
    """No metrics to write."""


def steps_in(run: Run) -> list[tuple[int, bool]]:
    return [(found.step, found.permanent) for found in store_of(run).survey().complete]


def test_a_save_holds_the_state_of_its_moment_whatever_training_does_meanwhile(tmp_path: Path) -> None:
    run, gate = holder(str(tmp_path)), threading.Event()

    def wait(name: str) -> None:
        if name.endswith(".distcp"):
            assert gate.wait(20)

    saver = saver_of(run, wait)
    weight = torch.arange(6.0)
    saver.begin({"model.w": weight}, progress_at(3), permanent=False, before=nothing)
    weight += 100
    assert saver.poll().event is None
    assert (saver.writing, saver.busy) == (True, True)
    with pytest.raises(ValueError, match="settle it first"):
        saver.begin({"model.w": weight}, progress_at(4), permanent=False, before=nothing)
    gate.set()
    event = outcome(saver)
    assert isinstance(event, Saved)
    assert not saver.busy
    restored = {"model.w": torch.zeros(6)}
    store_of(run).load(event.found, restored)
    assert torch.equal(restored["model.w"], torch.arange(6.0))


def test_metrics_are_durable_before_the_checkpoint_counts(tmp_path: Path) -> None:
    run, order = holder(str(tmp_path)), []
    saver = saver_of(run, lambda name: order.append(name.rpartition("/")[2]))
    saver.begin({"model.w": torch.ones(2)}, progress_at(1), permanent=False, before=lambda: order.append("metrics"))
    outcome(saver)
    assert order[0] == "metrics"
    assert order[-1] == "COMPLETE.json"


def test_a_full_disk_costs_attempts_with_growing_pauses_and_nothing_incomplete_is_chosen(tmp_path: Path) -> None:
    run, clock = holder(str(tmp_path)), Clock()
    saver = saver_of(run, full_disk(3), clock, retry_seconds=10)
    told = []
    saver.begin({"model.w": torch.arange(4.0)}, progress_at(2), permanent=False, before=nothing)
    for pause in (10, 20, 40):
        failed = outcome(saver)
        assert isinstance(failed, Failed)
        told.append((failed.step, failed.attempts, failed.pause_seconds))
        assert "No space left" in failed.reason
        assert store_of(run).newest() is None
        clock.seconds += pause - 1
        saver.poll()
        assert not saver.writing
        clock.seconds += 1
        saver.poll()
        assert saver.writing
    assert told == [(2, 1, 10), (2, 2, 20), (2, 3, 40)]
    saved = outcome(saver)
    assert isinstance(saved, Saved)
    assert (saved.found.step, saved.attempts) == (2, 4)
    assert steps_in(run) == [(2, False)]


def test_a_newer_state_takes_the_place_of_one_that_waits_and_its_permanence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = holder(str(tmp_path))
    saver = saver_of(run, full_disk(1))
    saver.begin({"model.w": torch.ones(2)}, progress_at(6), permanent=True, before=nothing)
    assert isinstance(outcome(saver), Failed)
    saver.begin({"model.w": torch.ones(2)}, progress_at(8), permanent=False, before=nothing)
    assert isinstance(outcome(saver), Saved)
    assert steps_in(run) == [(8, True)]
    assert "step 6 was not saved; step 8 takes its place" in caplog.text


@pytest.mark.parametrize(("minutes", "ends"), [(5.0, True), (None, False)])
def test_a_run_ends_only_after_its_minutes_without_a_save(minutes: float | None, ends: bool, tmp_path: Path) -> None:
    run, clock = holder(str(tmp_path)), Clock()
    saver = saver_of(run, full_disk(2), clock, give_up_minutes=minutes, retry_seconds=1e5)
    saver.begin({"model.w": torch.ones(2)}, progress_at(2), permanent=False, before=nothing)
    outcome(saver)
    clock.seconds = 4.9 * 60
    saver.begin({"model.w": torch.ones(2)}, progress_at(3), permanent=False, before=nothing)
    outcome(saver)
    clock.seconds = 5.0 * 60
    if ends:
        with pytest.raises(CheckpointError, match="step 3 could not be saved in 1 attempts"):
            saver.poll()
    else:
        saver.poll()
        saver.begin({"model.w": torch.ones(2)}, progress_at(4), permanent=False, before=nothing)
        assert isinstance(outcome(saver), Saved)


def test_a_run_that_is_to_end_early_leaves_a_store_in_trouble_at_its_limit(tmp_path: Path) -> None:
    run, gate = holder(str(tmp_path)), threading.Event()
    disk = full_disk(1)

    def act(name: str) -> None:
        if name.endswith(".distcp"):
            assert gate.wait(20)
        disk(name)

    saver = saver_of(run, act, Clock(), give_up_minutes=None)
    saver.begin({"model.w": torch.ones(2)}, progress_at(2), permanent=False, before=nothing)
    assert saver.poll(past_limit=True).event is None  # an attempt under way is not cut off
    gate.set()
    assert isinstance(outcome(saver), Failed)
    with pytest.raises(CheckpointError, match="step 2 could not be saved"):
        saver.poll(past_limit=True)


def _lost(name: str) -> None:
    raise LeaseLost("epoch 7 exists")


def _wrong(name: str) -> None:
    raise TypeError("a fault of the program")


@pytest.mark.parametrize(
    ("act", "value", "raised"),
    [(_lost, 1.0, LeaseLost), (lambda name: None, float("nan"), NotFinite)],
    ids=["a lost lease", "a value that is not finite"],
)
def test_what_would_fail_again_is_raised_at_the_next_poll(
    act: Callable[[str], None], value: float, raised: type[Exception], tmp_path: Path
) -> None:
    saver = saver_of(holder(str(tmp_path)), act)
    saver.begin({"model.w": torch.tensor([value])}, progress_at(2), permanent=False, before=nothing)
    with pytest.raises(raised):
        outcome(saver)


def test_a_fault_of_the_program_is_not_tried_again(tmp_path: Path) -> None:
    saver = saver_of(holder(str(tmp_path)))
    saver.begin({"model.w": torch.ones(1)}, progress_at(2), permanent=False, before=lambda: _wrong(""))
    with pytest.raises(TypeError, match="a fault of the program"):
        outcome(saver)


def test_the_first_checkpoint_is_read_back_and_one_that_does_not_come_back_ends_the_run(tmp_path: Path) -> None:
    run = holder(str(tmp_path))
    saver = saver_of(run, rehearse=True)
    saver.begin({"model.w": torch.arange(3.0)}, progress_at(1), permanent=False, before=nothing)
    assert isinstance(outcome(saver), Saved)

    def damage(name: str) -> None:
        if name.endswith("COMPLETE.json"):
            shard = next(Path(tmp_path).glob("**/step-00000002/*.distcp"))
            data = bytearray(shard.read_bytes())
            data[len(data) // 2] ^= 1
            shard.write_bytes(data)

    second = saver_of(run, damage, rehearse=True)
    second.begin({"model.w": torch.arange(3.0)}, progress_at(2), permanent=False, before=nothing)
    with pytest.raises(RehearsalFailed, match=r"step 2 .* does not have the sha256"):
        outcome(second)


def test_a_rehearsal_leaves_model_and_optimizer_as_they_were_and_no_file(tmp_path: Path) -> None:
    run = holder(str(tmp_path))
    model, optimizer = trained(steps=0)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    rehearse_restore(store_of(run), HostCopy(), model, optimizer, progress_at(0))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert not optimizer.state
    assert run.state.find("*") == []
    assert all(parameter.grad is None for parameter in model.parameters())


class Rounding(nn.Linear):
    """A layer whose weight does not survive a restore, as one that is quantised when it is loaded."""

    def _load_from_state_dict(self, *arguments: Any, **options: Any) -> None:
        super()._load_from_state_dict(*arguments, **options)
        with torch.no_grad():
            self.weight.mul_(8).round_().div_(8)


class Stubborn(torch.optim.SGD):
    """An optimizer that keeps something that is no tensor."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # a closure is never given
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["history"] = ["a step"]


def test_a_rehearsal_finds_weights_and_optimizers_that_cannot_be_restored(tmp_path: Path) -> None:
    store = store_of(holder(str(tmp_path)))
    model = nn.Sequential(nn.Linear(3, 3), Rounding(3, 3))
    with pytest.raises(RehearsalFailed, match=r"did not come back as it was: model\.1\.weight"):
        rehearse_restore(store, HostCopy(), model, torch.optim.AdamW(model.parameters()), progress_at(0))
    plain = nn.Linear(3, 3)
    with pytest.raises(CheckpointError, match="'history' of weight as list"):
        rehearse_restore(store, HostCopy(), plain, Stubborn(plain.parameters()), progress_at(0))


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def no_log() -> Iterator[None]:
    """Keeps torch's log of each tensor from piling up in the records of the test."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("no_log")
def test_memory_of_saves_and_restores_is_one_copy_and_stays_flat(tmp_path: Path) -> None:
    run = holder(str(tmp_path))
    state: dict[str, Tensor] = {f"model.{n}": torch.rand(1 << 18) for n in range(8)}  # 8 MiB
    saver = saver_of(run)
    store = store_of(run)
    sizes, places = [], set()
    for step in range(1, 31):
        saver.begin(state, progress_at(step), permanent=False, before=nothing)
        event = outcome(saver)
        assert isinstance(event, Saved)
        places.add(tuple(part.data_ptr() for part in saver.copy.parts.values()))
        store.load(event.found, state)
        sizes.append(_resident())
    assert len(places) == 1
    assert saver.copy.size == sum(tensor.nbytes for tensor in state.values())
    assert min(sizes[25:]) - min(sizes[5:10]) < saver.copy.size / 4  # over twenty saves and restores
