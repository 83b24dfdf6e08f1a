"""Which steps are skipped, by a slow count over plain lists, and that a skipped step changes nothing."""

import json
import math
import random
import statistics
from dataclasses import replace

import pytest
import torch

from marin.optim.build import build_optimizer
from marin.optim.config import GuardConfig, LossScaleConfig, OptimizerConfig, OptimizerKind
from marin.optim.guard import Skip, StepGuard, failures_in_a_row, step_unless
from marin.optim.loss_scale import LossScale
from tests.model.small import SMALL, lively, packed

YES = torch.tensor(True)
SHALLOW = replace(SMALL, layers=1)


def decide(guard: StepGuard, loss: float, norm: float) -> Skip:
    values = torch.tensor(loss, dtype=torch.float64), torch.tensor(norm, dtype=torch.float64)
    return Skip(int(guard.decide(*values, torch.isfinite(values[0]))))


def series(steps: int) -> list[tuple[float, float]]:
    """Losses and norms with a spike of each, a level that stays, and values that are not finite."""
    generator = random.Random(3)
    found = [(3 - 0.01 * s + generator.gauss(0, 0.05), 1 + generator.gauss(0, 0.1)) for s in range(steps)]
    found[20] = (9.0, 1.0)
    found[27] = (2.8, 40.0)
    found[30] = (math.nan, 1.0)
    found[31] = (2.7, math.inf)
    found[35] = (2.7, 20.0)
    found[40:] = [(loss + 5, norm) for loss, norm in found[40:]]
    return found


def expected(values: list[tuple[float, float]], deviations: float, window: int) -> list[Skip]:
    recent: list[tuple[float, float]] = []
    reasons = []
    for loss, norm in values:
        if not math.isfinite(loss) or not math.isfinite(norm):
            reasons.append(Skip.GRADIENT if math.isfinite(loss) else Skip.LOSS)
            continue
        known = recent[-window:]
        reason = Skip.NONE
        limits = [math.inf, math.inf]
        if len(known) >= window // 2:
            for place, value, name in ((1, norm, Skip.NORM_OUTLIER), (0, loss, Skip.LOSS_OUTLIER)):
                one = [pair[place] for pair in known]
                limits[place] = statistics.mean(one) + deviations * statistics.stdev(one)
                if value > limits[place]:
                    reason = name
        recent.append((min(loss, limits[0]), min(norm, limits[1])))
        reasons.append(reason)
    return reasons


@pytest.mark.parametrize(("deviations", "window"), [(6.0, 16), (3.0, 8)])
def test_outliers_are_what_lies_deviations_above_the_last_steps(deviations: float, window: int):
    values = series(60)
    wanted = expected(values, deviations, window)
    guard = StepGuard(GuardConfig(deviations, window), "cpu")
    assert [decide(guard, *pair) for pair in values] == wanted
    assert {Skip.LOSS, Skip.GRADIENT, Skip.LOSS_OUTLIER, Skip.NORM_OUTLIER} <= set(wanted)
    assert wanted[20] is Skip.LOSS_OUTLIER
    assert wanted[27] is wanted[35] is Skip.NORM_OUTLIER, "one outlier does not hide the next"
    assert wanted[-1] is Skip.NONE, "a level that lasts becomes ordinary"


def test_only_what_is_not_finite_is_skipped_by_default():
    guard = StepGuard(GuardConfig(), "cpu")
    reasons = [decide(guard, *pair) for pair in series(60)]
    assert {step for step, reason in enumerate(reasons) if reason is not Skip.NONE} == {30, 31}


def test_a_guard_goes_on_from_its_state():
    values = series(60)
    config = GuardConfig(3.0, 8)
    whole = StepGuard(config, "cpu")
    reasons = [decide(whole, *pair) for pair in values]
    for cut in (3, 25, 33):
        first = StepGuard(config, "cpu")
        for pair in values[:cut]:
            first.count(decide(first, *pair))
        second = StepGuard(config, "cpu")
        second.restore(json.loads(json.dumps(first.state())))
        assert second.figures() == first.figures()
        assert [decide(second, *pair) for pair in values[cut:]] == reasons[cut:]
    assert first.figures()["skips"]["gradient"] == 1


def test_overflow_lowers_the_scale_and_a_good_while_raises_it():
    config = LossScaleConfig(initial=8.0, interval=3, least=2.0, most=16.0)
    scale = LossScale(config, "cpu")
    guard = StepGuard(GuardConfig(), "cpu", scale)
    steps = [math.inf, 1.0, 1.0, 1.0, 1.0, math.nan, math.inf, math.inf, math.inf]
    found = [(decide(guard, 1.0, norm), float(scale.value)) for norm in steps]
    assert [size for _, size in found] == [4.0, 4.0, 4.0, 8.0, 8.0, 4.0, 2.0, 2.0, 2.0]
    # At the least factor an overflow is a failure like any other.
    assert [reason for reason, _ in found] == [
        *(Skip.OVERFLOW, Skip.NONE, Skip.NONE, Skip.NONE, Skip.NONE),
        *(Skip.OVERFLOW, Skip.OVERFLOW, Skip.GRADIENT, Skip.GRADIENT),
    ]
    assert decide(guard, math.nan, math.nan) is Skip.LOSS
    assert float(scale.value) == 2.0
    for _ in range(2):
        decide(guard, 1.0, 1.0)
    other = LossScale(config, "cpu")
    other.restore(json.loads(json.dumps(scale.state())))
    for one in (scale, other):
        one.update(YES)
        assert float(one.value) == 4.0


def test_scaled_gradients_are_those_of_the_loss():
    model, scaled = lively(dtype=torch.float32), lively(dtype=torch.float32)
    scale = LossScale(LossScaleConfig(), "cpu")
    for form in (model, scaled):
        sums = form(**packed())
        loss = sums.total_sum / sums.token_count
        (loss if form is model else scale.scaled(loss)).backward()
    scale.unscale(scaled)
    for (name, a), (_, b) in zip(model.named_parameters(), scaled.named_parameters(), strict=True):
        assert torch.equal(a.grad, b.grad), name  # the factor is a power of two


def test_failures_in_a_row_forget_outliers_and_overlook_overflows():
    assert failures_in_a_row(1, [Skip.LOSS, Skip.OVERFLOW, Skip.GRADIENT]) == 3
    assert failures_in_a_row(2, [Skip.LOSS_OUTLIER, Skip.LOSS]) == 1
    assert failures_in_a_row(2, [Skip.NONE]) == 0


@pytest.mark.parametrize("on_host", [False, True], ids=["device", "host"])
@pytest.mark.parametrize("kind", list(OptimizerKind))
def test_a_skipped_step_changes_nothing_and_one_that_is_made_is_the_plain_one(kind: OptimizerKind, on_host: bool):
    model, plain = lively(SHALLOW, torch.float32), lively(SHALLOW, torch.float32)
    config = OptimizerConfig(0.003, kind=kind)
    optimizers = [build_optimizer(model, config, on_host=on_host), build_optimizer(plain, config)]
    for step, found in enumerate([0.0, 1.0, 0.0, 1.0]):
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        kept = [{k: t.clone() for k, t in s.items()} for s in optimizers[0].state.values()]
        for form in (model, plain):
            sums = form(**packed(seed=step))
            (sums.total_sum / sums.token_count * (torch.nan if found and form is model else 1)).backward()
        # As on a device where nobody looks: the step is computed and thrown away.
        optimizers[0].found_inf = torch.tensor(found)
        optimizers[0].step()
        if found:
            assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
            for old, new in zip(kept, optimizers[0].state.values(), strict=True):
                assert all(torch.equal(old[name], tensor) for name, tensor in new.items())
        else:
            optimizers[1].step()
        for optimizer in optimizers:
            optimizer.zero_grad()
    for (name, a), (_, b) in zip(model.named_parameters(), plain.named_parameters(), strict=True):
        assert torch.equal(a, b), name
    assert [s["step"].item() for s in optimizers[0].state.values() if "step" in s][:1] in ([2.0], [])


def test_step_unless_asks_on_the_cpu():
    model = lively(SMALL, torch.float32)
    optimizer = build_optimizer(model, OptimizerConfig(0.003))
    sums = model(**packed())
    sums.total_sum.backward()
    before = model.head.weight.detach().clone()
    step_unless(optimizer, torch.tensor(int(Skip.LOSS)))
    assert torch.equal(model.head.weight, before)
    assert not optimizer.state
    step_unless(optimizer, torch.tensor(int(Skip.NONE)))
    assert not torch.equal(model.head.weight, before)


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: GuardConfig(deviations=0.0), "guard.deviations"),
        (lambda: GuardConfig(window=1), "guard.window"),
        (lambda: LossScaleConfig(initial=0.5), "initial 0.5"),
        (lambda: LossScaleConfig(backoff=1.0), "backoff 1.0"),
        (lambda: LossScaleConfig(interval=0), "interval"),
    ],
)
def test_impossible_guards_name_their_field(make, field: str):
    with pytest.raises(ValueError, match=field):
        make()
