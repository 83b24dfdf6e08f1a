"""Runs that begin from the checkpoint of another, against that other run and against its model by itself."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from marin.checkpoint.artifacts import Checkpoint
from marin.checkpoint.config import CheckpointPolicy
from marin.checkpoint.loading import load_model
from marin.execution import Fleet, derive_seed, materialise
from marin.execution.artifact import call_of
from marin.optim.config import OptimizerConfig
from marin.tokens.mixture.artifacts import Mixture
from marin.tokens.mixture.config import MixtureConfig
from marin.tokens.mixture.loader import MixtureLoader
from marin.tokens.mixture.steps import build_mixture
from marin.training.config import TrainingConfig, ValidationGrid
from marin.training.continuation import InitConfig, Take
from marin.training.job import TrainingJob
from marin.training.preflight import init_faults
from marin.training.steps import pretrain
from marin.training.tensors import on_device
from tests.checkpoint.holder import holder
from tests.docs.pages import ROOT, python_of
from tests.tokens.building import written_shards
from tests.training.rank_pool import RankFailed, shared_pool
from tests.training.test_loop import SAME_EVERYWHERE
from tests.training.test_pretrain import counting, fixed_tokenizer, heldout_of, mixture_of
from tests.training.toy import VOCABULARY, toy_model

pytestmark = pytest.mark.slow

PARENT = TrainingConfig(
    steps=12,
    batch_sequences=8,
    optimizer=OptimizerConfig(1e-2),
    warmup_share=0.2,
    validation=ValidationGrid(percents=(), sequences=4),
    checkpoints=CheckpointPolicy(every_steps=None, permanent_every_steps=4, rehearse=False),
)
CONTINUED = InitConfig(at_step=8, schedule=Take.CONTINUED, data=Take.CONTINUED)
ANOTHER_MIXTURE = InitConfig(may_differ=("mixture",))
ANNEALING = replace(PARENT, steps=4, warmup_share=0.0, final_share=0.0)


def other_mixture() -> Mixture:
    return build_mixture({"c": written_shards(counting(11, 50), 40, VOCABULARY, "c")}, MixtureConfig())


@dataclass(frozen=True)
class Life:
    """A run of `job` on the state under `prefix`."""

    job: TrainingJob
    prefix: str
    epoch: int = 1


@dataclass(frozen=True)
class Lived:
    """What it did: its metrics, and what its last checkpoint says."""

    lines: list[dict[str, Any]]
    first_step: int
    step: int
    tokens: int
    parts: dict[str, Any]


def live(life: Life) -> Lived:
    """One rank."""
    from marin.training.metrics import read_segments
    from marin.training.rank import train

    run = holder(life.prefix, epoch=life.epoch)
    outcome = train(life.job, run)
    lines = list(read_segments(run.state.store, outcome.metrics, outcome.first_step + 1))
    (progress,) = [file for file in outcome.checkpoint if file.name == "progress.json"]
    parts = json.loads(run.state.store.read(progress.key))["parts"]
    return Lived(lines, outcome.first_step, outcome.step, outcome.tokens, parts)


def lived(job: TrainingJob, prefix: Path, epoch: int = 1) -> Lived:
    (one,) = shared_pool().run(live, Life(job, str(prefix), epoch), 1)
    return one


def curve(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: line[name] for name in ("step", *SAME_EVERYWHERE)} for line in lines]


@dataclass(frozen=True)
class Family:
    """A finished run with what it was made from, and another mixture."""

    parent: Checkpoint
    job: TrainingJob
    other: Mixture

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(text) for text in self.parent.read("metrics.jsonl").splitlines()]

    def child(self, training: TrainingConfig, config: InitConfig, mixture: Mixture | None = None) -> TrainingJob:
        return replace(
            self.job, training=training, init=self.parent, init_config=config, mixture=mixture or self.job.mixture
        )


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    prefix = str(tmp_path_factory.mktemp("parent"))
    graph = pretrain(mixture_of(), heldout_of(), fixed_tokenizer(VOCABULARY), toy_model(), PARENT).on(Fleet())
    parent = materialise(graph, prefix=prefix)
    heldout = {name: materialise(shards, prefix=prefix) for name, shards in heldout_of().items()}
    job = TrainingJob(
        mixture=materialise(mixture_of(), prefix=prefix), heldout=heldout, model=toy_model(), training=PARENT
    )
    return Family(parent, job, materialise(other_mixture(), prefix=prefix))


def test_with_everything_continued_it_is_the_same_run_bit_for_bit_also_when_it_is_interrupted(
    family: Family, tmp_path: Path
) -> None:
    assert family.parent.permanent_steps == (4, 8, 12)
    until_10 = lived(family.child(replace(PARENT, end_step=10), CONTINUED), tmp_path)
    assert (until_10.first_step, until_10.step) == (8, 10)
    rest = lived(family.child(PARENT, CONTINUED), tmp_path, epoch=2)
    assert curve(rest.lines) == curve(family.lines[8:])
    assert rest.tokens == family.parent.tokens
    assert rest.parts["origin"] == {
        "checkpoint": family.parent.identity,
        "step": 8,
        "data_offset": 0,
        "optimizer": "continued",
        "schedule": "continued",
        "data": "continued",
    }


def test_the_runs_of_the_page_are_those_that_are_tested_here(family: Family) -> None:
    page = python_of(ROOT / "docs" / "how-to" / "continue-a-run.md")
    inputs = (family.job.heldout, fixed_tokenizer(VOCABULARY), toy_model(), PARENT)
    annealed = call_of(page["annealed"](family.parent, family.other, *inputs))
    longer = call_of(page["longer"](family.parent, family.job.mixture, *inputs))
    assert annealed is not None
    assert longer is not None
    assert (annealed.arguments["training"], annealed.arguments["init_config"]) == (ANNEALING, ANOTHER_MIXTURE)
    assert longer.arguments["init_config"] == InitConfig(data=Take.CONTINUED)
    for call in (annealed, longer):
        job = TrainingJob(**{name: value for name, value in call.arguments.items() if name != "tokenizer"})
        assert init_faults(job) == []


def test_annealing_takes_weights_and_optimizer_to_another_mixture_and_a_schedule_of_its_own(
    family: Family, tmp_path: Path
) -> None:
    config = ANOTHER_MIXTURE
    kept = lived(family.child(ANNEALING, config, family.other), tmp_path / "kept")
    alone = lived(family.child(ANNEALING, replace(config, optimizer=Take.FRESH), family.other), tmp_path / "alone")
    assert [line["step"] for line in kept.lines] == [1, 2, 3, 4]
    rates = [line["learning_rate"] for line in kept.lines]
    peak = PARENT.optimizer.learning_rate
    assert [max(of_step.values()) / peak for of_step in rates] == pytest.approx([1.0, 0.75, 0.5, 0.25])
    assert kept.lines[0]["tokens_total"] == kept.lines[0]["tokens"]

    seed = derive_seed(ANNEALING.seed, "data order")
    batch = MixtureLoader(family.other, toy_model().sequence_length, seed, ANNEALING.sequences).batch(0, 8)
    with torch.no_grad():
        sums = load_model(family.parent)(*on_device(batch, torch.device("cpu")))
    expected = float(sums.nll_sum) / int(sums.token_count)
    assert kept.lines[0]["loss"] == pytest.approx(expected, rel=1e-5)
    assert alone.lines[0]["loss"] == kept.lines[0]["loss"]
    assert alone.lines[1]["loss"] != kept.lines[1]["loss"]


def test_data_goes_on_where_the_other_run_was_and_the_checkpoints_say_so(family: Family, tmp_path: Path) -> None:
    config = InitConfig(at_step=8, data=Take.CONTINUED)
    child = lived(family.child(replace(ANNEALING, end_step=2), config), tmp_path)
    assert child.lines[0]["loss"] == family.lines[8]["loss"]
    assert child.lines[0]["mixture"] == family.lines[8]["mixture"]
    assert child.parts["origin"]["data_offset"] == 8 * 8


def test_what_differs_and_may_not_is_told_before_a_rank_starts_and_on_every_rank(
    family: Family, tmp_path: Path
) -> None:
    plain = family.child(replace(ANNEALING, gradient_clip=1.0), InitConfig(), family.other)
    faults = init_faults(plain)
    assert [line.split(": ")[1] for line in faults] == ["gradient_clip", "mixture"]
    assert "init_config.may_differ" in faults[0]
    with pytest.raises(RankFailed, match="IdentityMismatch"):
        lived(plain, tmp_path)
    assert init_faults(family.child(ANNEALING, InitConfig(at_step=5))) == [
        "init_config.at_step is 5; the permanent checkpoints are 4, 8, 12"
    ]
    whole = InitConfig(schedule=Take.CONTINUED, data=Take.CONTINUED)
    assert "the schedule goes on after step 12" in init_faults(family.child(PARENT, whole))[0]
    assert "without init" in init_faults(replace(family.job, init_config=whole))[0]
    assert init_faults(family.job) == []
