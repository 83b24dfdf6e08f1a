"""The plan of a run on fewer workers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from marin.execution import Fleet
from marin.execution.fleet import Elastic
from marin.parallel.config import ParallelPlan
from marin.training.elastic import plan_for, sizes_for
from tests.training.toy import toy_model, toy_training


def test_on_all_workers_nothing_changes() -> None:
    training = toy_training(parallel=ParallelPlan(dp_shard=4, ep=2))
    assert plan_for(training, toy_model(), 4) == training


@pytest.mark.parametrize(
    ("plan", "workers", "expected"),
    [
        (ParallelPlan(dp_replicate=2, dp_shard=4, ep=2), 4, ParallelPlan(dp_shard=4, ep=2)),
        (ParallelPlan(dp_replicate=4, dp_shard=2, ep=2), 4, ParallelPlan(dp_replicate=2, dp_shard=2, ep=2)),
        (ParallelPlan(dp_shard=8, ep=2), 4, ParallelPlan(dp_shard=4, ep=2)),
        (ParallelPlan(dp_shard=8, ep=4), 2, ParallelPlan(dp_shard=2, ep=2)),
        (ParallelPlan(dp_replicate=2, dp_shard=4, ep=4), 2, ParallelPlan(dp_shard=2, ep=2)),
        (ParallelPlan(dp_shard=2, ep=2), 1, ParallelPlan()),
    ],
)
def test_replicas_go_first_then_shards_then_expert_groups(
    plan: ParallelPlan, workers: int, expected: ParallelPlan
) -> None:
    assert plan_for(toy_training(parallel=plan), toy_model(), workers).parallel == expected


def test_every_rank_takes_more_of_the_same_batch_in_micro_batches_of_the_same_size() -> None:
    training = toy_training(parallel=ParallelPlan(dp_shard=4), batch_sequences=8)
    smaller = plan_for(training, toy_model(), 2)
    assert training.micro_batches(4) == ((0, 2),)
    assert smaller.micro_batches(2) == ((0, 2), (2, 2))
    finer = plan_for(replace(training, micro_batch_sequences=1), toy_model(), 2)
    assert finer.micro_batches(2) == ((0, 1), (1, 1), (2, 1), (3, 1))


def test_the_sizes_of_a_gang_have_a_plan_and_fill_whole_nodes_or_a_part_of_one() -> None:
    training = toy_training(parallel=ParallelPlan(dp_shard=8, ep=2), batch_sequences=24)

    def sizes(**fields: int) -> tuple[int, ...]:
        fleet = Fleet(workers=8, elastic=Elastic(min_workers=fields.pop("least", None)), **fields)
        return sizes_for(training, toy_model(), fleet)

    assert sizes() == (8,)
    assert sizes(least=1) == (8, 6, 4, 3, 2, 1)
    assert sizes(least=3) == (8, 6, 4, 3)
    assert sizes(least=1, workers_per_node=4) == (8, 4, 3, 2, 1)


def test_a_batch_that_divides_by_no_smaller_number_of_workers_is_told(caplog: pytest.LogCaptureFixture) -> None:
    training = toy_training(parallel=ParallelPlan(dp_shard=7), batch_sequences=7)
    assert sizes_for(training, toy_model(), Fleet(workers=7, elastic=Elastic(min_workers=2))) == (7,)
    assert "batch of 7 sequences must divide by it" in caplog.text
    with pytest.raises(ValueError, match="batch_sequences is 7 on 3 ranks"):
        plan_for(training, toy_model(), 3)


def test_a_smaller_fleet_is_one_of_the_same_kind_of_nodes() -> None:
    fleet = Fleet(workers=16, workers_per_node=8, elastic=Elastic(min_workers=4))
    assert fleet.node_loads(16) == [8, 8]
    assert fleet.node_loads(12) == [8, 4]
    assert fleet.of_size(16) is fleet
    assert (fleet.of_size(8).workers, fleet.of_size(8).nodes) == (8, 1)
    assert (fleet.of_size(4).workers_per_node, fleet.of_size(4).elastic.min_workers) == (4, 4)
    with pytest.raises(ValueError, match=r"fleet.elastic.min_workers is 17; give 1 to fleet.workers 16"):
        Fleet(workers=16, elastic=Elastic(min_workers=17))
