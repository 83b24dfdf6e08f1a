"""Forks of a run from a permanent checkpoint, beside the run itself; and that checkpoint as an artifact of its own."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from marin.checkpoint.artifacts import Checkpoint
from marin.checkpoint.loading import load_model
from marin.execution import Fleet, StepError, make_plan, materialise
from marin.storage import open_store
from marin.training.config import TrainingConfig
from marin.training.fork import CURVES, ForkComparison
from marin.training.permanent import checkpoint_of, identity_of
from marin.training.side_by_side import summary
from marin.training.steps import pretrain
from tests.docs.pages import ROOT, python_of
from tests.training.test_continuation import PARENT
from tests.training.test_pretrain import fixed_tokenizer, heldout_of, mixture_of
from tests.training.toy import VOCABULARY, toy_model

pytestmark = pytest.mark.slow


def run_of(training: TrainingConfig) -> Checkpoint:
    """The run, on one rank."""
    return pretrain(mixture_of(), heldout_of(), fixed_tokenizer(VOCABULARY), toy_model(), training).on(Fleet())


def contents(prefix: str) -> Iterator[tuple[str, str]]:
    """Every object of the run's own folder and record, with its digest."""
    store = open_store(prefix)
    short = identity_of(run_of(PARENT))[:10]
    for folder in ("model/pretrain", "_steps"):
        for info in store.list(folder):
            if short in info.key:
                yield info.key, hashlib.sha256(store.read(info.key)).hexdigest()


@dataclass(frozen=True)
class Side:
    """What there was before the forks, and what came of them."""

    prefix: str
    run: Checkpoint
    before: dict[str, str]
    comparison: ForkComparison


@pytest.fixture(scope="module")
def side(tmp_path_factory: pytest.TempPathFactory) -> Side:
    """The trial of the page on changing a live run: two steps with and without clipping, from step 8."""
    prefix = str(tmp_path_factory.mktemp("forks"))
    run = materialise(run_of(PARENT), prefix=prefix)
    before = dict(contents(prefix))
    trial = python_of(ROOT / "docs" / "how-to" / "change-a-live-run.md")["trial"]
    inputs = (mixture_of(), heldout_of(), fixed_tokenizer(VOCABULARY))
    clipped = replace(PARENT, gradient_clip=0.05)
    compared = trial(run_of(PARENT), 8, inputs, toy_model(), PARENT, clipped, ("gradient_clip",))
    return Side(prefix, run, before, materialise(compared, prefix=prefix))


def test_a_fork_without_a_change_repeats_the_run_bit_for_bit(side: Side) -> None:
    assert (side.comparison.first, side.comparison.last) == (9, 10)
    lines = [json.loads(text) for text in side.run.read("metrics.jsonl").splitlines()]
    assert side.comparison.read_json("comparison.json")["control"] == [line["loss"] for line in lines[8:10]]


def test_a_changed_fork_reads_the_same_batches_and_its_difference_is_that_of_the_metrics(side: Side) -> None:
    changed = side.comparison.forks["changed"]
    assert changed.same_batches
    assert not changed.identical
    joined = side.comparison.read_json("comparison.json")
    control, fork = joined["control"], joined["forks"]["changed"]
    assert joined["steps"] == [9, 10]
    assert fork["loss"][0] == control[0]  # the same weights and the same batch: the change shows a step later
    assert fork["difference"] == [b - a for a, b in zip(control, fork["loss"], strict=True)]
    assert changed.mean_difference == pytest.approx(sum(fork["difference"]) / 2)
    assert side.comparison.read(CURVES).count(b"<polyline") == 3


def test_the_run_is_untouched_and_its_old_recipe_still_answers(side: Side) -> None:
    after = dict(contents(side.prefix))
    assert {key: after[key] for key in side.before} == side.before
    assert not make_plan([run_of(PARENT)], open_store(side.prefix)).to_do()


def test_a_permanent_checkpoint_of_a_run_is_an_artifact_before_the_run_has_ended(side: Side) -> None:
    store = open_store(side.prefix)
    for info in list(store.list("_steps")):
        if identity_of(run_of(PARENT))[:10] in info.key:
            store.delete(info.key)
    checkpoint = materialise(checkpoint_of(run_of(PARENT), 4), prefix=side.prefix)
    assert (checkpoint.step, checkpoint.model) == (4, toy_model())
    assert math.isnan(checkpoint.unigram_loss)
    assert [json.loads(line)["step"] for line in checkpoint.read("metrics.jsonl").splitlines()] == [1, 2, 3, 4]
    assert load_model(checkpoint) is not None
    with pytest.raises(StepError, match=r"no permanent checkpoint of step 5; it has 4, 8, 12"):
        materialise(checkpoint_of(run_of(PARENT), 5), prefix=side.prefix)


def test_skipped_steps_and_other_batches_show_in_a_summary() -> None:
    line = {"loss": 2.0, "tokens": 10, "mixture": {"a": 1}, "tokens_per_s": 100.0, "skipped": False}
    other = [
        {**line, "loss": None, "skipped": True},
        {**line, "loss": 2.5, "tokens_per_s": 50.0, "mixture": {"a": 0}},
    ]
    found = summary([line, line], other)
    assert (found.skipped, found.same_batches, found.identical) == (1, False, False)
    assert (found.mean_difference, found.largest_difference, found.speed) == (0.5, 0.5, 0.75)
