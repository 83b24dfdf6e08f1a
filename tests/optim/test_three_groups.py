"""One step of each rule against its formula in float64, matrix by matrix, and what the hyperball promises."""

import pytest
import torch

from marin.model.transformer import Transformer
from marin.optim.build import apply_schedule, build_optimizer
from marin.optim.config import OptimizerConfig, OptimizerKind
from marin.optim.hyperball import on_sphere, orthogonalise
from tests.model.small import SMALL, lively, packed
from tests.optim.learning import losses_of

CONFIG = OptimizerConfig(learning_rate=0.003, beta1=0.9, beta2=0.95, kind=OptimizerKind.MUONH)
TRIPLES = [
    (4.0848, -6.8946, 2.9270),
    (3.9505, -6.3029, 2.6377),
    (3.7418, -5.5913, 2.3037),
    (2.8769, -3.1427, 1.2046),
    (2.8366, -3.0525, 1.2012),
]


def newton_schulz(matrix: torch.Tensor) -> torch.Tensor:
    """On the singular values: the iteration is an odd polynomial of each."""
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    s = s / matrix.norm()
    for a, b, c in TRIPLES:
        s = a * s + b * s**3 + c * s**5
    return u @ torch.diag(s) @ v


def sphere(weight: torch.Tensor, direction: torch.Tensor, rate: float) -> torch.Tensor:
    moved = weight - rate * direction * weight.norm() / direction.norm()
    return moved * weight.norm() / moved.norm()


def parts(name: str, tensor: torch.Tensor) -> list[torch.Tensor]:
    """The matrices that a parameter is made of."""
    if name.endswith("experts.gate_up"):
        return [half for expert in tensor for half in expert.chunk(2)]
    if name.endswith("experts.down"):
        return list(tensor)
    if name.endswith("shared.gate_up"):
        return list(tensor.chunk(2 * SMALL.shared_experts))
    if name.endswith("shared.down"):
        return list(tensor.chunk(SMALL.shared_experts))
    return [tensor]


def trained(steps: int) -> tuple[Transformer, list[dict[str, torch.Tensor]], dict[str, torch.Tensor]]:
    """A model after some steps, the gradients of each, and the weights before."""
    model = lively()
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    optimizer = build_optimizer(model, CONFIG)
    gradients = []
    for step in range(steps):
        sums = model(**packed(seed=step))
        (sums.total_sum / sums.token_count).backward()
        gradients.append({n: p.grad.clone() for n, p in model.named_parameters()})
        optimizer.step()
        optimizer.zero_grad()
    return model, gradients, before


def test_two_steps_of_every_group_equal_their_formulas():
    model, gradients, weights = trained(2)
    rate, muonh = 0.003, 13 / 3 * 0.003
    for name, parameter in model.named_parameters():
        kind = name.rsplit(".", 1)[-1]
        plain = kind in ("gain", "latent_gain", "taps", "head_gate") or name == "embedding.weight"
        decayed = kind == "head_gate" or name.endswith("router.weight")
        pieces = zip(
            parts(name, weights[name]), *(parts(name, g[name]) for g in gradients), parts(name, parameter), strict=True
        )
        for weight, first, second, found in pieces:
            expected = weight
            m = v = torch.zeros_like(weight)
            for step, gradient in enumerate((first, second), start=1):
                if plain or decayed or name == "head.weight":
                    m, v = 0.9 * m + 0.1 * gradient, 0.95 * v + 0.05 * gradient**2
                    direction = (m / (1 - 0.9**step)) / ((v / (1 - 0.95**step)).sqrt() + 1e-8)
                    if name == "head.weight":
                        expected = sphere(expected, direction, muonh)
                    else:
                        expected = expected * (1 - rate * (0.02 if decayed else 0.0)) - rate * direction
                else:
                    m = 0.95 * m + gradient
                    expected = sphere(expected, newton_schulz(gradient + 0.95 * m), muonh)
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10, msg=lambda text, n=name: f"{n}: {text}")


@pytest.mark.parametrize("shape", [(3, 24, 8), (2, 8, 24), (1, 16, 16)])
def test_orthogonalisation_brings_singular_values_near_one(shape: tuple[int, ...]):
    matrices = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = orthogonalise(matrices, torch.float64)
    torch.testing.assert_close(found, torch.stack([newton_schulz(m) for m in matrices]))
    values = torch.linalg.svdvals(found)
    assert float(values.min()) > 0.7
    assert float(values.max()) < 1.3


def test_norms_stay_for_a_hundred_steps_in_fp32():
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(4, 12, 20, generator=generator)
    before = weights.double().norm(dim=(1, 2))
    for _ in range(100):
        direction = orthogonalise(torch.randn(4, 12, 20, generator=generator), torch.float32)
        weights = on_sphere(weights, direction, 0.02)
    torch.testing.assert_close(weights.double().norm(dim=(1, 2)), before, rtol=1e-6, atol=0)


def test_a_zero_gradient_moves_no_matrix():
    weights = torch.randn(2, 4, 5)
    direction = orthogonalise(torch.zeros(2, 4, 5), torch.float32)
    torch.testing.assert_close(on_sphere(weights, direction, 0.1), weights)


def test_recipe_takes_rates_and_constants_from_the_budget_and_anneals_the_gate_decay():
    config = OptimizerConfig.recipe(tokens=18e12, batch_tokens=11_264 * 4096, width=6144)
    assert config.muonh_rate == pytest.approx(0.003291, abs=5e-7)
    optimizer = build_optimizer(Transformer(SMALL), config)
    apply_schedule(optimizer, 0.5, remaining=0.25)
    groups = {group["name"]: group for group in optimizer.param_groups}
    assert groups["muonh"]["lr"] == pytest.approx(0.5 * config.muonh_rate)
    assert groups["adamh"]["lr"] == groups["muonh"]["lr"]
    assert groups["adam"]["lr"] == groups["gates"]["lr"] == pytest.approx(0.5 * config.learning_rate)
    assert groups["gates"]["weight_decay"] == pytest.approx(0.25 * 0.02)
    assert groups["adam"]["weight_decay"] == groups["muonh"]["weight_decay"] == 0
    assert sum(len(group["params"]) for group in groups.values()) == len(list(Transformer(SMALL).parameters()))


def test_the_small_model_learns_with_the_recipes_rules():
    model = Transformer(SMALL)
    optimizer = build_optimizer(model, OptimizerConfig(learning_rate=0.01, kind=OptimizerKind.MUONH))
    losses = losses_of(model, optimizer, 40)
    # The head keeps its norm, so it cannot become sure of anything.
    assert losses[-1] < losses[0] - 1
