"""The router bias is set once per optimizer step, from counts over all micro-batches, each token counted once."""

import torch

from marin.model.balancing import sign_bias
from marin.model.config import Balancing, BalancingConfig, ModelConfig
from marin.model.outputs import LocalReducer
from marin.model.router import Router, finish_step
from marin.optim.build import build_optimizer
from marin.optim.config import OptimizerConfig
from marin.parallel.build import build_model
from marin.parallel.config import Recompute
from tests.model.small import SMALL, packed

COUNTS = [[8, 0, 4, 4], [0, 8, 4, 4], [6, 2, 4, 4]]


def router_of_four() -> Router:
    """A router of four experts, one a token, that follows the largest of four inputs."""
    config = ModelConfig.shaped(
        width=4,
        layers=1,
        head_dim=4,
        vocab_size=8,
        experts=4,
        experts_per_token=1,
        sequence_length=16,
        balancing=BalancingConfig(kind=Balancing.SIGN, sign_step=0.01),
    )
    router = Router(config)
    router.reset_state()
    with torch.no_grad():
        router.weight.copy_(torch.eye(4))
    return router


def tokens_for(counts: list[int]) -> torch.Tensor:
    return torch.repeat_interleave(torch.eye(4), torch.tensor(counts), dim=0)


class TwoRanks(LocalReducer):
    """As if a second rank had counted `other`."""

    def __init__(self, other: list[int]) -> None:
        self.other = other

    def sum_(self, tensor: torch.Tensor) -> None:
        """Add the second rank's loads and tokens."""
        if tensor.dtype == torch.int64:
            tensor += torch.tensor([[*self.other, sum(self.other), 0]])


def test_one_update_from_the_summed_counts_of_three_micro_batches():
    router = router_of_four()
    for counts in COUNTS:
        router(tokens_for(counts))
    assert router.load_E.tolist() == [14, 10, 12, 12]
    statistics = finish_step([router], LocalReducer())
    assert statistics.load_LE.tolist() == [[14, 10, 12, 12]]
    torch.testing.assert_close(router.bias, torch.tensor([-0.01, 0.01, 0.0, 0.0]))
    assert router.load_E.tolist() == [0, 0, 0, 0]
    assert router.tokens == 0
    torch.testing.assert_close(sign_bias(torch.zeros(4), torch.tensor([14, 10, 12, 12]), 0.01), router.bias)


def test_counts_on_two_ranks_give_the_same_bias():
    router = router_of_four()
    router(tokens_for(COUNTS[0]))
    router(tokens_for(COUNTS[1]))
    finish_step([router], TwoRanks(COUNTS[2]))
    torch.testing.assert_close(router.bias, torch.tensor([-0.01, 0.01, 0.0, 0.0]))


def test_recomputing_activations_counts_no_token_twice():
    batch = packed(batch=3)
    loads = []
    for recompute in Recompute:
        model = build_model(SMALL, seed=0, recompute=recompute)
        sums = model(**batch)
        (sums.total_sum / sums.token_count).backward()
        statistics = model.update_router_bias()
        assert statistics.tokens == batch["tokens_BT"].numel()
        loads.append((statistics.load_LE, [r.bias.clone() for r in model.routers()]))
    assert torch.equal(loads[0][0], loads[1][0])
    assert all(torch.equal(a, b) for a, b in zip(loads[0][1], loads[1][1], strict=True))


def test_the_bias_decides_the_choice_but_not_the_weights_and_is_no_parameter():
    router = router_of_four()
    router.bias.copy_(torch.tensor([0.0, 5.0, 0.0, 0.0]))
    routing = router(tokens_for([1, 1, 1, 1]))
    assert routing.experts_NK.flatten().tolist() == [1, 1, 1, 1]
    torch.testing.assert_close(routing.weights_NK, torch.full((4, 1), 2.5))
    model = build_model(SMALL, seed=0)
    optimized = {id(p) for group in build_optimizer(model, OptimizerConfig(0.01)).param_groups for p in group["params"]}
    assert all(id(r.bias) not in optimized for r in model.routers())
    assert optimized == {id(p) for p in model.parameters()}
