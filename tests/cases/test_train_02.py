"""Balance loss and router z-loss have their published values, reach the router, and scale with their weights alone:
however often a micro-batch is accumulated, and however its tokens are spread over ranks.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from marin.model.config import Balancing, BalancingConfig, ModelConfig
from marin.model.outputs import LocalReducer
from marin.model.router import Router, finish_step
from marin.parallel.build import build_model
from marin.parallel.config import Recompute
from tests.model.small import SMALL, packed

LOGITS = torch.tensor(
    [
        [-1.048, 0.177, -0.52, 0.416],
        [0.503, -1.738, -1.947, 1.35],
        [-0.963, -1.063, 1.983, -0.119],
        [1.346, -0.095, 0.556, -1.398],
        [0.539, 1.472, 0.093, 0.965],
        [0.686, -1.744, 1.033, 0.364],
        [-0.795, -1.876, 1.462, -0.109],
        [0.875, 1.515, 0.857, 1.684],
    ],
    dtype=torch.float64,
)
TOKENS_PER_EXPERT = [3, 3, 4, 6]
BALANCE_LOSS = 1.0436237204237393
"""E · Σ f · P of these eight tokens."""
Z_LOSS = 4.022170718747033
"""Mean squared log-partition."""


def router_of_four(auxiliary: float = 0.0, router_z_loss: float = 0.0) -> Router:
    """A router of four experts, two a token, whose logits are its input."""
    balancing = BalancingConfig(kind=Balancing.AUXILIARY, auxiliary_coefficient=auxiliary, router_z_loss=router_z_loss)
    sizes = {"experts": 4, "experts_per_token": 2, "sequence_length": 16, "vocab_size": 8}
    router = Router(ModelConfig.shaped(width=4, layers=1, head_dim=4, balancing=balancing, **sizes)).double()
    router.reset_state()
    with torch.no_grad():
        router.weight.copy_(torch.eye(4))
    return router


def losses(router: Router, m_ND: torch.Tensor) -> torch.Tensor:
    """What a micro-batch adds to the loss, by token."""
    router.set_losses(router(m_ND))
    taken = router.take_losses()
    assert taken is not None
    return taken


def test_losses_have_the_listed_values():
    router = router_of_four(auxiliary=1.0)
    assert float(losses(router, LOGITS).detach().mean()) == pytest.approx(BALANCE_LOSS, rel=1e-14)
    assert router.load_E.tolist() == TOKENS_PER_EXPERT
    assert float(losses(router_of_four(router_z_loss=1.0), LOGITS).detach().mean()) == pytest.approx(Z_LOSS, rel=1e-14)


def test_the_step_reports_the_same_values():
    router = router_of_four(auxiliary=0.3, router_z_loss=0.2)
    losses(router, LOGITS)
    statistics = finish_step([router], LocalReducer())
    assert float(statistics.balance_loss_L) == pytest.approx(BALANCE_LOSS, rel=1e-12)
    assert float(statistics.z_loss_L) == pytest.approx(Z_LOSS, rel=1e-12)


class OtherRank(LocalReducer):
    """As if another rank had sent its tokens' assignments to these experts."""

    def __init__(self, load: torch.Tensor) -> None:
        self.load = load

    def begin_sum(self, tensor: torch.Tensor) -> Callable[[], None]:
        """Add them when the sum is waited for."""

        def wait() -> None:
            tensor.add_(self.load)

        return wait


@pytest.mark.parametrize("share", [1, 3, 4])
def test_split_over_two_ranks_the_gradient_is_the_same(share: int):
    weights = {"auxiliary": 0.7, "router_z_loss": 0.1}
    alone = router_of_four(**weights)
    (losses(alone, LOGITS).sum() / 8).backward()
    gradient = torch.zeros(4, 4, dtype=torch.float64)
    halves = LOGITS[:share], LOGITS[share:]
    for own, other in (halves, halves[::-1]):
        router = router_of_four(**weights)
        router.reducer = OtherRank(torch.bincount(other.topk(2).indices.flatten(), minlength=4))
        (losses(router, own).sum() / 8).backward()
        gradient += router.weight.grad
    torch.testing.assert_close(gradient, alone.weight.grad, rtol=1e-13, atol=1e-15)


def gradient_of(
    coefficient: float,
    times: int = 1,
    recompute: Recompute = Recompute.NONE,
    router_z_loss: float = 0.0,
    reducer: LocalReducer = LocalReducer(),
) -> tuple[float, torch.Tensor]:
    """Loss of a small model whose micro-batch is accumulated so often, and the gradient of all its router weights."""
    balancing = BalancingConfig(
        kind=Balancing.AUXILIARY, auxiliary_coefficient=coefficient, router_z_loss=router_z_loss
    )
    model = build_model(replace(SMALL, layers=2, balancing=balancing), seed=0, dtype=torch.float64, recompute=recompute)
    model.set_reducer(reducer)
    batch = packed()
    total = 0.0
    for _ in range(times):
        loss = model(**batch).total_sum / (times * int(batch["loss_mask_BT"].sum()))
        loss.backward()
        total += float(loss.detach())
    return total, torch.cat([router.weight.grad for router in model.routers()])


def test_the_gradient_is_there_linear_in_the_coefficient_and_zero_gives_exactly_the_plain_loss():
    plain_loss, plain = gradient_of(0.0)
    once_loss, once = gradient_of(0.01)
    twice_loss, twice = gradient_of(0.02)
    assert float((once - plain).norm()) > 1e-6
    torch.testing.assert_close(twice - plain, 2 * (once - plain), rtol=1e-9, atol=1e-15)
    assert twice_loss - plain_loss == pytest.approx(2 * (once_loss - plain_loss), rel=1e-12)
    # Two layers, each about 1 when the router is as good as even.
    assert once_loss - plain_loss == pytest.approx(0.02, rel=0.05)
    model = build_model(replace(SMALL, layers=2, balancing=BalancingConfig(kind=Balancing.NONE)), seed=0).double()
    batch = packed()
    assert float((model(**batch).total_sum / int(batch["loss_mask_BT"].sum())).detach()) == plain_loss


@pytest.mark.parametrize("times", [2, 4, 8])
def test_accumulating_the_same_micro_batch_changes_nothing(times: int):
    once_loss, once = gradient_of(0.01, router_z_loss=0.001)
    loss, gradient = gradient_of(0.01, times, router_z_loss=0.001)
    assert loss == pytest.approx(once_loss, rel=1e-13)
    torch.testing.assert_close(gradient, once, rtol=1e-12, atol=1e-16)


class Counting(LocalReducer):
    """Counts the sums that are begun."""

    begun = 0

    def begin_sum(self, tensor: torch.Tensor) -> Callable[[], None]:
        """One more."""
        self.begun += 1
        return super().begin_sum(tensor)


@pytest.mark.parametrize("recompute", [Recompute.SELECTIVE, Recompute.FULL])
def test_recomputing_activations_changes_nothing_and_pools_nothing_again(recompute: Recompute):
    counting = Counting()
    loss, gradient = gradient_of(0.01, recompute=recompute, router_z_loss=0.001, reducer=counting)
    assert counting.begun == 2, "not once for each layer"
    plain_loss, plain = gradient_of(0.01, router_z_loss=0.001)
    assert loss == plain_loss
    torch.testing.assert_close(gradient, plain, rtol=1e-12, atol=1e-16)


def test_tokens_without_a_target_add_nothing_and_evaluation_has_no_such_loss():
    balancing = BalancingConfig(kind=Balancing.AUXILIARY, auxiliary_coefficient=1.0)
    model = build_model(replace(SMALL, layers=1, balancing=balancing), seed=0, dtype=torch.float64)
    batch = packed()
    batch["loss_mask_BT"] = torch.zeros_like(batch["loss_mask_BT"])
    assert float(model(**batch).total_sum.detach()) == 0.0
    model.eval()
    batch = packed()
    with torch.no_grad():
        sums = model(**batch)
    assert float(sums.total_sum) == pytest.approx(float(sums.nll_sum + SMALL.z_loss * sums.z_sum), rel=1e-14)
