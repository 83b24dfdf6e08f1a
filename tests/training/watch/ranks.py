"""What tests of the watch run in two ranks."""

from __future__ import annotations

import time
from typing import Any


def exchange_times(delay: float) -> dict[str, Any]:
    """Rows to and fro between two ranks, rank 1 late by `delay` in the forward pass and again in the backward pass."""
    import torch
    import torch.distributed as dist

    from marin.parallel.exchange_clock import ExchangeClock
    from marin.training.environment import RankEnvironment
    from marin.training.process_group import process_group

    with process_group(RankEnvironment.read()) as ranks:
        clock = ExchangeClock()
        world = dist.group.WORLD
        assert world is not None
        x = torch.randn(4, 3, requires_grad=True)
        clock.exchange("warm-up", x, [2, 2], [2, 2], world)
        clock.take()
        dist.barrier()
        if ranks.rank == 1:
            time.sleep(delay)
        y = clock.exchange("dispatch", x, [2, 2], [2, 2], world)
        forward = clock.take()
        dist.barrier()
        if ranks.rank == 1:
            time.sleep(delay)
        y.sum().backward()
        return {
            "forward": forward,
            "backward": clock.take(),
            "entered": clock.entered,
            "left": clock.left,
            "last": clock.last,
            "gradient": x.grad.tolist() if x.grad is not None else None,
        }


def run_with_secret(task: Any, variable: str, value: str) -> Any:
    """A toy run whose step was given a secret."""
    from marin.execution.secrets import SecretValues, available
    from tests.training.toy import train_toy

    with available(SecretValues({variable: value})):
        return train_toy(task)
