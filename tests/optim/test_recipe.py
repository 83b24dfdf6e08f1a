"""The published peaks, the recipe's schedule, and the optimizer's groups."""

from dataclasses import replace

import pytest
import torch

from marin.model.accounting import rung_steps
from marin.model.config import ModelConfig
from marin.optim.build import apply_schedule, build_optimizer
from marin.optim.config import OptimizerConfig, Schedule, recipe_rates
from marin.parallel.build import build_model
from tests.model.small import SMALL
from tests.optim.learning import losses_of


@pytest.mark.parametrize(
    ("rung", "batch", "peak"),
    [("d768", 1024, 0.0158), ("d1024", 2048, 0.0144), ("d1536", 6144, 0.0149), ("d2048", 11_264, 0.0134)],
)
def test_published_peaks_of_the_ladder(rung: str, batch: int, peak: float):
    model = ModelConfig.rung(rung)
    batch_tokens = batch * 4096
    rates = recipe_rates(tokens=rung_steps(model, batch) * batch_tokens, batch_tokens=batch_tokens, width=model.width)
    assert rates.muonh == pytest.approx(peak, abs=5e-5)
    assert rates.beta1 == 0.9062
    assert rates.beta2 == pytest.approx(min(max(0.999 ** (batch_tokens / 131_072), 0.95), 0.9999))


def test_published_constants_of_the_hero():
    rates = recipe_rates(tokens=18.0e12, batch_tokens=11_264 * 4096, width=6144)
    assert rates.muonh == pytest.approx(0.003291, abs=5e-7)
    assert rates.adam == pytest.approx(0.000759, abs=5e-7)
    assert rates.eps == pytest.approx(6.04e-15, rel=1e-3)
    assert rates.beta2 == 0.95


def test_rates_of_tiny_budgets_are_capped():
    rates = recipe_rates(tokens=1e5, batch_tokens=65_536, width=16)
    assert rates.adam == rates.muonh == 0.05
    with pytest.raises(ValueError, match="tokens is 0"):
        recipe_rates(tokens=0, batch_tokens=1, width=1)


@pytest.mark.parametrize("steps", [1, 2, 3, 150, 390_251])
def test_recipe_schedule_warms_up_for_a_hundredth_and_ends_at_a_twentieth(steps: int):
    schedule = Schedule.recipe(steps)
    assert schedule.share(steps) == 0.05
    assert max(schedule.share(s) for s in {*range(min(steps, 5000)), steps - 1}) == 1.0
    warmup = schedule.warmup_steps
    assert [schedule.share(s) for s in range(warmup)] == [(s + 1) / warmup for s in range(warmup)]
    if steps > 100:
        assert schedule.warmup_steps == round(steps / 100)
        assert schedule.share(steps - 1) == pytest.approx(0.05, abs=0.95 / (0.98 * steps))


def test_adamw_decays_mixing_matrices_only_and_follows_the_schedule():
    model = build_model(SMALL, seed=0)
    optimizer = build_optimizer(model, OptimizerConfig(learning_rate=0.01, weight_decay=0.1))
    names = {id(p): n for n, p in model.named_parameters()}
    decayed = {names[id(p)] for g in optimizer.param_groups if g["weight_decay"] for p in g["params"]}
    others = {names[id(p)] for g in optimizer.param_groups if not g["weight_decay"] for p in g["params"]}
    assert {"head.weight", "blocks.0.attention.query", "blocks.0.moe.experts.down"} <= decayed
    assert {"embedding.weight", "output_norm.gain", "blocks.0.attention.head_gate"} <= others
    assert decayed | others == set(names.values())
    apply_schedule(optimizer, 0.25)
    assert all(group["lr"] == 0.0025 for group in optimizer.param_groups)


def test_a_small_model_learns_a_batch_by_heart():
    model = build_model(replace(SMALL, layers=2), seed=0)
    optimizer = build_optimizer(model, OptimizerConfig(learning_rate=0.01))
    losses = losses_of(model, optimizer, 40)
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize(
    ("field", "value"), [("learning_rate", 0.0), ("beta1", 1.0), ("beta2", -0.1), ("eps", 0.0), ("weight_decay", -1.0)]
)
def test_impossible_settings_name_their_field(field: str, value: float):
    with pytest.raises(ValueError, match=field):
        OptimizerConfig(**{"learning_rate": 0.01, field: value})


def test_fused_adamw_equals_the_formula_in_float64():
    weight = torch.nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    module = torch.nn.Module()
    module.register_parameter("weight", weight)
    module.config = SMALL
    optimizer = build_optimizer(
        module, OptimizerConfig(learning_rate=0.1, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1)
    )
    expected, m, v = weight.detach().clone(), torch.zeros(2).double(), torch.zeros(2).double()
    for step, grad in enumerate((torch.tensor([0.3, -0.1]), torch.tensor([-0.2, 0.5])), start=1):
        weight.grad = grad.double()
        optimizer.step()
        g = grad.double()
        m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g * g
        expected = expected - 0.1 * 0.1 * expected
        expected = expected - 0.1 * (m / (1 - 0.9**step)) / ((v / (1 - 0.95**step)).sqrt() + 1e-8)
    torch.testing.assert_close(weight.detach(), expected)
