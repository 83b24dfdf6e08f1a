"""What a watched run writes beside the loop's own figures."""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from marin.execution import Secret
from marin.parallel.config import ParallelPlan, Recompute
from marin.training.watch.config import OnDifference, WatchConfig
from marin.training.watch.live import read_live
from tests.checkpoint.holder import holder
from tests.training.rank_pool import RankFailed, shared_pool
from tests.training.test_loop import curve
from tests.training.toy import ToyResult, ToyTask, toy_training, train_toy
from tests.training.watch.disturbances import Dies, Drifts
from tests.training.watch.processes import started
from tests.training.watch.ranks import run_with_secret
from tests.training.watch.receiver import Receiver

WATCH = WatchConfig(activations_every=4, norms_every=3, checksums_every=2)
REPLICAS = ParallelPlan(dp_replicate=2)
EXPERTS = ParallelPlan(dp_shard=2, ep=2)


def life(task: ToyTask, world: int = 2) -> list[ToyResult]:
    return shared_pool().run(train_toy, task, world)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> list[ToyResult]:
    """A watched run with its experts on two ranks."""
    folder = tmp_path_factory.mktemp("watched")
    return life(ToyTask(str(folder), plan=EXPERTS, watched=True, training=toy_training(watch=WATCH)))


def test_watching_changes_nothing_that_the_run_computes(watched: list[ToyResult], tmp_path: Path) -> None:
    plain = life(ToyTask(str(tmp_path), plan=EXPERTS))
    assert curve(watched[0]) == curve(plain[0])
    assert [rank.weights for rank in watched] == [rank.weights for rank in plain]


def test_each_figure_is_there_on_its_steps_and_on_no_other(watched: list[ToyResult]) -> None:
    lines = watched[0].lines
    assert [line["step"] for line in lines if "activations" in line] == [4, 8, 12]
    assert [line["step"] for line in lines if "norms" in line] == [3, 6, 9, 12]
    assert [line["step"] for line in lines if "checksums" in line] == [2, 4, 6, 8, 10, 12]
    assert all({"memory", "routing", "life"} <= line.keys() for line in lines)
    assert len({line["life"] for line in lines}) == 1


def test_norms_by_group_add_up_to_the_norm_of_the_step(watched: list[ToyResult]) -> None:
    for line in watched[0].lines:
        if "norms" in line:
            squares = sum(norm**2 for norm in line["norms"]["gradient"].values())
            assert math.sqrt(squares) == pytest.approx(line["gradient_norm"], rel=1e-6)
            assert line["norms"]["weight"]["experts"] > 0


def test_time_in_the_exchange_lies_within_forward_and_backward(watched: list[ToyResult]) -> None:
    for line in watched[0].lines:
        seconds = line["seconds"]
        assert 0 < seconds["exchange"] < seconds["forward"] + seconds["backward"]


def test_routing_figures_follow_from_the_load(watched: list[ToyResult]) -> None:
    for line in watched[0].lines:
        routing, router = line["routing"], line["router"]
        assert routing["entropy_share"] == pytest.approx(router["load_entropy"] / math.log(4), rel=1e-9)
        assert routing["entropy_share_lowest"] <= routing["entropy_share"]
        for (low, middle, high), most in zip(
            routing["load_percentiles_by_layer"], router["load_max_over_mean_by_layer"], strict=True
        ):
            assert 0 <= low <= middle <= high <= most
        assert routing["dead_experts_by_layer"] == [0, 0]
        assert routing["bias_largest"] >= 0


def test_activation_ranges_are_those_of_one_process_whatever_is_recomputed_or_split(
    watched: list[ToyResult], tmp_path: Path
) -> None:
    training = toy_training(watch=WATCH, micro_batch_sequences=3, recompute=Recompute.FULL)
    alone = life(ToyTask(str(tmp_path), plan=ParallelPlan(), watched=True, training=training), 1)
    names = [f"blocks.{layer}{part}" for layer in (0, 1) for part in ("", ".attention", ".moe")]
    for step in (4, 8):
        ours, theirs = watched[0].lines[step - 1]["activations"], alone[0].lines[step - 1]["activations"]
        assert list(ours) == ["embedding_norm", *names, "output_norm"] == list(theirs)
        for name, (low, high, rms) in ours.items():
            assert low < 0 < rms < high
            assert theirs[name] == pytest.approx([low, high, rms], rel=1e-5)


def test_activation_ranges_are_those_of_the_outputs_themselves() -> None:
    import torch

    from marin.training.process_group import RankContext
    from marin.training.watch.activations import ActivationMeter

    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh())
    meter = ActivationMeter({"first": model[0], "never": torch.nn.Linear(1, 1)})
    batches = [torch.randn(5, 3), torch.randn(2, 3)]
    meter.attach()
    with torch.no_grad():
        for batch in batches:
            model(batch)
        meter.detach()
        model(batches[0] * 100)
    whole = torch.cat([model[0](batch) for batch in batches]).detach()
    found = meter.ranges(RankContext(0, 1, torch.device("cpu"), None))  # type: ignore[arg-type]  # one rank needs none
    assert list(found) == ["first"]
    assert found["first"].lowest == pytest.approx(float(whole.min()))
    assert found["first"].highest == pytest.approx(float(whole.max()))
    assert found["first"].rms == pytest.approx(float(whole.square().mean().sqrt()), rel=1e-6)


def test_equal_copies_are_compared_and_one_lost_bit_ends_the_run_by_name(tmp_path: Path) -> None:
    training = toy_training(watch=WATCH, steps=6)
    task = ToyTask(str(tmp_path / "stop"), plan=REPLICAS, watched=True, training=training)
    drift = Drifts(step=3, rank=1, parameter="blocks.1.moe.latent_up")
    with pytest.raises(RankFailed, match=r"after step 4 copies .* blocks\.1\.moe\.latent_up: ranks 0 \| 1") as caught:
        life(replace(task, hooks=(drift,)))
    assert {name for name, _ in caught.value.errors.values()} == {"StepError"}

    often = replace(training.checkpoints, every_steps=2)  # the first save, which is rehearsed, comes before the drift
    warn = replace(training, watch=replace(WATCH, checksum_difference=OnDifference.WARN), checkpoints=often)
    lines = life(replace(task, prefix=str(tmp_path / "warn"), training=warn, hooks=(drift,)))[0].lines
    different = [line["checksums"]["different"] for line in lines if "checksums" in line]
    assert different[0] == 0
    assert min(different[1:]) >= 1
    assert lines[1]["checksums"]["compared"] > 20, "every parameter and the routers' biases"


def test_alerts_of_a_run_reach_the_webhook_whose_url_is_a_secret(tmp_path: Path) -> None:
    rule = {"kind": "limit", "severity": "page", "when": "always", "why": "a test", "metric": "loss", "above": 0.0}
    rules = tmp_path / "rules.yaml"
    rules.write_text(yaml.safe_dump({"schema": 2, "alerts": [{"name": "any_loss", **rule}]}))
    receiver = Receiver([])
    watch = replace(WATCH, alerts=str(rules), webhook=Secret("HOOK"))
    task = ToyTask(str(tmp_path / "run"), plan=ParallelPlan(), watched=True, training=toy_training(watch=watch))
    try:
        shared_pool().run(functools.partial(run_with_secret, variable="HOOK", value=receiver.url), task, 1)
    finally:
        receiver.server.shutdown()
        receiver.server.server_close()
    (message,) = receiver.received
    assert (message["alert"], message["state"], message["step"]) == ("any_loss", "fired", 1)
    assert message["text"].startswith("toy: alert any_loss (page) at step 1: always; it is ")


def test_the_lines_since_the_last_checkpoint_outlive_the_process(tmp_path: Path) -> None:
    watch = replace(WATCH, live_seconds=0.02)
    task = ToyTask(str(tmp_path), plan=ParallelPlan(), watched=True, training=toy_training(watch=watch))
    process = started(_slow_and_dying, task)
    process.join(150)
    assert process.exitcode == 9
    state = holder(task.prefix).state
    left = list(read_live(state, after=4))
    assert [line["step"] for line in left][:2] == [5, 6]
    resumed = life(task, 1)[0]
    assert [line["step"] for line in resumed.lines] == list(range(1, 13))
    assert [line["loss"] for line in left] == [line["loss"] for line in resumed.lines[4 : 4 + len(left)]]
    lives = {line["life"] for line in resumed.lines}
    assert len(lives) == 2, "each life has a name of its own"


def _slow_and_dying(task: ToyTask) -> None:
    train_toy(replace(task, hooks=(Dies(step=7, pause=0.2),)))
