"""Lion and Adafactor against their formulas, and torch's Adafactor; state that rests on the host changes nothing."""

from dataclasses import replace

import pytest
import torch

from marin.checkpoint.tensors import create_optimizer_state, optimizer_tensors
from marin.model.transformer import Transformer
from marin.optim.adafactor import Adafactor
from marin.optim.build import apply_schedule, build_optimizer
from marin.optim.config import OptimizerConfig, OptimizerKind
from marin.optim.host_state import Streamed
from marin.optim.lion import Lion
from tests.model.small import SMALL, lively, packed
from tests.optim.learning import losses_of

SHALLOW = replace(SMALL, layers=1)
SHAPES = ((5, 7), (6,), (3, 4, 5), (1, 9))


def numbers(seed: int, scale: float = 1.0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [scale * torch.randn(shape, dtype=torch.float64, generator=generator) for shape in SHAPES]


def test_lion_follows_its_program():
    rate, decay, beta1, beta2 = 0.03, 0.2, 0.9, 0.97
    parameters = [torch.nn.Parameter(tensor) for tensor in numbers(0)]
    lion = Lion([{"params": parameters, "lr": rate, "weight_decay": decay, "betas": (beta1, beta2)}])
    expected, momenta = numbers(0), [torch.zeros(shape, dtype=torch.float64) for shape in SHAPES]
    for step in range(4):
        for place, gradient in enumerate(numbers(step + 1)):
            parameters[place].grad = gradient
            direction = (beta1 * momenta[place] + (1 - beta1) * gradient).sign()
            expected[place] = expected[place] - rate * (direction + decay * expected[place])
            momenta[place] = beta2 * momenta[place] + (1 - beta2) * gradient
        lion.step()
    for found, wanted in zip(parameters, expected, strict=True):
        torch.testing.assert_close(found.detach(), wanted, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("rate", "scale"), [(0.01, 1.0), (0.9, 1e-3), (0.05, 1e-12)])
def test_adafactor_gives_the_numbers_of_torchs(rate: float, scale: float):
    ours, theirs = ([torch.nn.Parameter(tensor) for tensor in numbers(0, 0.02)] for _ in range(2))
    optimizers = (
        Adafactor([{"params": ours, "lr": rate, "weight_decay": 0.1}]),
        torch.optim.Adafactor(theirs, lr=rate, weight_decay=0.1),
    )
    for step in range(5):
        for parameters in (ours, theirs):
            for parameter, gradient in zip(parameters, numbers(step + 1, scale), strict=True):
                parameter.grad = gradient
        for optimizer in optimizers:
            optimizer.step()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(("kind", "rate"), [(OptimizerKind.ADAFACTOR, 0.06), (OptimizerKind.LION, 0.01)])
def test_plain_rules_decay_what_adamw_decays_and_learn(kind: OptimizerKind, rate: float):
    model = Transformer(SHALLOW)
    optimizer = build_optimizer(model, OptimizerConfig(learning_rate=rate, kind=kind))
    adamw = build_optimizer(model, OptimizerConfig(learning_rate=0.01))
    assert [g["params"] for g in optimizer.param_groups] == [g["params"] for g in adamw.param_groups]
    apply_schedule(optimizer, 0.5)
    assert {group["lr"] for group in optimizer.param_groups} == {0.5 * rate}
    losses = losses_of(model, optimizer, 30)
    assert losses[-1] < losses[0] - 0.5


@pytest.mark.parametrize("kind", list(OptimizerKind))
def test_state_on_the_host_gives_the_same_numbers_and_the_same_checkpoint(kind: OptimizerKind):
    config = OptimizerConfig(0.003, kind=kind)
    device, host = lively(SHALLOW, torch.float32), lively(SHALLOW, torch.float32)
    optimizers = [build_optimizer(device, config), build_optimizer(host, config, on_host=True)]
    if isinstance(optimizers[1], Streamed):
        optimizers[1].bucket_bytes = 1024  # several buckets
    for step in range(3):
        for model, optimizer in zip((device, host), optimizers, strict=True):
            sums = model(**packed(seed=step))
            (sums.total_sum / sums.token_count).backward()
            apply_schedule(optimizer, 1 - step / 3)
            optimizer.step()
            optimizer.zero_grad()
    for (name, a), (_, b) in zip(device.named_parameters(), host.named_parameters(), strict=True):
        assert torch.equal(a, b), name
    saved, other = optimizer_tensors(device, optimizers[0]), optimizer_tensors(host, optimizers[1])
    assert saved.keys() == other.keys()
    assert all(torch.equal(tensor, other[name]) for name, tensor in saved.items())

    # A fresh one takes the state up as a restore does, in place.
    fresh = lively(SHALLOW, torch.float32)
    restored = build_optimizer(fresh, config, on_host=True)
    create_optimizer_state(restored)
    with torch.no_grad():
        for tensors, source in ((optimizer_tensors(fresh, restored), other), (fresh.state_dict(), host.state_dict())):
            assert tensors.keys() == source.keys()
            for name, tensor in tensors.items():
                tensor.copy_(source[name])
    for model, optimizer in ((fresh, restored), (host, optimizers[1])):
        sums = model(**packed(seed=9))
        (sums.total_sum / sums.token_count).backward()
        apply_schedule(optimizer, 0.5)
        optimizer.step()
    for (name, a), (_, b) in zip(fresh.named_parameters(), host.named_parameters(), strict=True):
        assert torch.equal(a, b), name


def test_closures_are_refused():
    model = Transformer(SHALLOW)
    for kind, on_host in ((OptimizerKind.LION, False), (OptimizerKind.ADAMW, True)):
        with pytest.raises(ValueError, match="closure"):
            build_optimizer(model, OptimizerConfig(0.01, kind=kind), on_host=on_host).step(lambda: 0.0)
