"""ckpt-05: a signal at any moment: the run saves, ends on every rank with a documented code, and goes on exactly."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from marin.checkpoint.completeness import survey
from marin.execution import FailureClass, Preempted, StopRequest
from marin.execution.running.worker import failure_of
from marin.parallel.config import ParallelPlan
from marin.tokens.mixture.config import LoaderConfig
from marin.training.config import ValidationGrid
from marin.training.stopping import signals_to
from tests.checkpoint.holder import holder
from tests.training.rank_pool import RankFailed, shared_pool
from tests.training.test_loop import curve, scores
from tests.training.toy import Signalled, ToyResult, ToyTask, toy_training, train_toy

TRAINING = toy_training(validation=ValidationGrid(percents=(50,), sequences=6), micro_batch_sequences=2)


def send_to_whoever_waits(note: Path, number: signal.Signals) -> None:
    """Sends the signal to the process whose id appears in the note."""
    deadline = time.monotonic() + 60
    while not note.exists():
        if time.monotonic() > deadline:
            return
        time.sleep(0.01)
    os.kill(int(note.read_text()), number)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[ToyResult]:
    prefix = str(tmp_path_factory.mktemp("undisturbed"))
    return shared_pool().run(train_toy, ToyTask(prefix, training=TRAINING, plan=ParallelPlan(dp_shard=2, ep=2)), 2)


@pytest.mark.parametrize(
    ("place", "after", "rank", "number", "ahead", "saved"),
    [
        ("step", 6, 1, signal.SIGTERM, 0, 7),
        ("step", 0, 0, signal.SIGINT, 4, 1),
        ("evaluation", 6, 0, signal.SIGTERM, 4, 6),
        ("save", 8, 1, signal.SIGTERM, 0, 8),
    ],
)
def test_a_signal_saves_what_is_finished_and_every_rank_ends_as_preempted(
    place: str,
    after: int,
    rank: int,
    number: signal.Signals,
    ahead: int,
    saved: int,
    undisturbed: list[ToyResult],
    tmp_path: Path,
) -> None:
    training = replace(TRAINING, loader=LoaderConfig(ahead=ahead))
    note = tmp_path / "note"
    task = ToyTask(str(tmp_path / "prefix"), training=training, plan=ParallelPlan(dp_shard=2, ep=2))
    sender = threading.Thread(target=send_to_whoever_waits, args=(note, number))
    sender.start()
    with pytest.raises(RankFailed) as caught:
        shared_pool().run(train_toy, replace(task, signalled=Signalled(place, after, rank, str(note))), 2)
    sender.join()
    assert [name for name, _ in caught.value.errors.values()] == ["Preempted", "Preempted"]
    assert f"stopped after step {saved}: rank {rank}: it got {number.name}" in str(caught.value)
    found = survey(holder(task.prefix).state)
    assert (found.complete[0].step, found.skipped) == (saved, ())
    assert shared_pool().run(threads_of_loaders, None, 2) == [[], []]

    resumed = shared_pool().run(train_toy, replace(task, epoch=2, signalled=Signalled("", 0, 0, "")), 2)
    assert [step for step, *_ in resumed[0].steps] == list(range(saved + 1, 13))
    assert curve(resumed[0]) == curve(undisturbed[0])
    assert scores(resumed[0]) == scores(undisturbed[0])
    assert [one.weights for one in resumed] == [one.weights for one in undisturbed]


def threads_of_loaders(nothing: None) -> list[str]:
    """Names of the loader's threads that are alive in a rank's process."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("loader")]


def test_a_preempted_rank_is_one_that_is_tried_again() -> None:
    assert failure_of(Preempted("stopped after step 3")).kind is FailureClass.preempted


def test_only_a_second_interrupt_some_time_later_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = StopRequest()
    with signals_to(stop):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)  # the launcher passes the same keystroke on
        assert stop.reason == "it got SIGINT"
        monkeypatch.setattr("marin.training.stopping.SAME_KEYSTROKE_SECONDS", 0.0)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_outside_the_main_thread_no_handler_is_touched() -> None:
    before = signal.getsignal(signal.SIGTERM)
    seen = []

    def work() -> None:
        with signals_to(StopRequest()):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]
