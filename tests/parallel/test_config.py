"""Which plans are refused, with which rule and which way out."""

from dataclasses import asdict, replace

import pytest
import yaml

from marin.model.config import ComputeConfig, ModelConfig
from marin.parallel.build import build_model
from marin.parallel.config import OverlapConfig, ParallelPlan, nearest_plans
from marin.parallel.exchange import AllToAllDispatcher, all_to_all, dispatcher_factory
from marin.parallel.recompute import Keeper, KeptDispatcher
from tests.model.small import SMALL


def test_world_and_expert_sharding_follow_from_the_plan():
    plan = ParallelPlan(dp_replicate=2, dp_shard=8, ep=4)
    assert (plan.world_size, plan.data_ranks, plan.efsdp) == (16, 16, 2)
    plan.check(replace(SMALL, experts=8), 16)
    ParallelPlan(dp_replicate=11, dp_shard=64, ep=64).check(ModelConfig.hero(), 704)


@pytest.mark.parametrize("name", ["pp", "tp", "cp"])
def test_dimensions_that_come_later_accept_one_only(name: str):
    with pytest.raises(ValueError, match=f"{name} is 2; only 1"):
        ParallelPlan(**{name: 2})


def test_expert_groups_must_divide_the_sharding_ranks():
    with pytest.raises(ValueError, match=r"ep is 3 and dp_shard is 8: ep must divide dp_shard.*ep 2, ep 4"):
        ParallelPlan(dp_shard=8, ep=3)
    with pytest.raises(ValueError, match="ep is 0"):
        ParallelPlan(ep=0)


def test_a_wrong_world_size_names_the_product_and_the_nearest_plans():
    with pytest.raises(
        ValueError, match=r"= 4 ranks, but the fleet has 6; nearest that fit: dp_replicate 1, dp_shard 6"
    ):
        ParallelPlan(dp_shard=4, ep=2).check(SMALL, 6)


def test_experts_must_divide_over_their_ranks():
    with pytest.raises(ValueError, match=r"ep 4 does not divide the model's 6 experts; nearest that fit"):
        ParallelPlan(dp_shard=4, ep=4).check(SMALL, 4)


@pytest.mark.parametrize("world", [1, 2, 6, 7, 704])
def test_every_suggested_plan_fits(world: int):
    plans = nearest_plans(ParallelPlan(dp_shard=4, ep=4), SMALL, world)
    assert plans
    for plan in plans:
        plan.check(SMALL, world)


def test_a_plan_survives_yaml():
    plan = ParallelPlan(dp_replicate=2, dp_shard=4, ep=2)
    assert ParallelPlan(**yaml.safe_load(yaml.safe_dump(asdict(plan)))) == plan


def test_compiling_is_refused_by_name_where_it_does_not_pay():
    with pytest.raises(ValueError, match=r"compute\.compile is true on cpu"):
        build_model(SMALL, seed=0, compute=ComputeConfig(compile=True))


def test_prefetching_backwards_is_refused():
    with pytest.raises(ValueError, match=r"overlap\.prefetch_blocks is -1"):
        OverlapConfig(prefetch_blocks=-1)


def test_a_dispatch_back_end_is_found_by_name_or_refused_with_the_way_out():
    assert dispatcher_factory("all_to_all") is all_to_all
    assert dispatcher_factory("marin.parallel.exchange:all_to_all") is all_to_all
    with pytest.raises(ValueError, match=r"compute\.dispatch is 'deepep'; give all_to_all, or module:function"):
        ComputeConfig(dispatch="deepep")
    for name in ("no_such_module:make", "marin.parallel.exchange:make"):
        with pytest.raises(ValueError, match=f"{name}', which cannot be imported on this rank"):
            dispatcher_factory(name)


def test_the_time_of_exchanges_is_known_under_recomputation_too():
    dispatcher = AllToAllDispatcher(group=None)
    assert KeptDispatcher(dispatcher, Keeper()).clock is dispatcher.clock
