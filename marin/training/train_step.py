"""One optimizer step over a global batch: gradients, the decision whether they count, update, routing.

On CUDA the host waits once, for the decision, when the whole update is enqueued already; the figures stay there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from marin.model.outputs import LossSums
from marin.optim.guard import Skip
from marin.training.global_batch import GlobalBatch
from marin.training.process_group import RankContext
from marin.training.tensors import on_device
from marin.training.throughput import PhaseClock
from marin.training.trainee import Trainee

OBJECTIVE, NLL, LOG_PARTITION, BAD_NORMS = range(4)
"""Places in `StepResult.sums`."""


@dataclass(frozen=True)
class StepResult:
    """What a step gave.

    Attributes:
        sums: [4], float64, over all ranks: the objective (divided by the batch's real tokens), the summed loss of the
            real tokens, their summed squared log-partition, and the number of ranks whose gradient norm is not finite.
        norm: 0-d, norm of the whole gradient.
        skip: why the update was not made, or that it was; the same on every rank.
        rates: learning rate of each group of parameters.
        router: routing of the step; empty for a skipped one.
    """

    sums: Tensor
    norm: Tensor
    skip: Skip
    rates: dict[str, float]
    router: dict[str, Any]

    @property
    def made(self) -> bool:
        """Whether the update was made."""
        return self.skip is Skip.NONE

    @property
    def finite(self) -> bool:
        """Whether loss and gradient are finite on every rank, or overflowed only for the scale of the loss."""
        return not self.skip.is_failure


def gradients(
    trainee: Trainee,
    batch: GlobalBatch,
    ranks: RankContext,
    clock: PhaseClock,
    total_loss: Callable[[LossSums], Tensor],
) -> Tensor:
    """Leaves the gradients of the whole batch and returns this rank's part of the sums of `StepResult`.

    What is differentiated is `total_loss` of each micro-batch over the real tokens of the whole batch.
    """
    sums = torch.zeros(4, dtype=torch.float64, device=ranks.device)
    for number, part in enumerate(batch.micro_batches, 1):
        trainee.begin_micro_batch(last=number == len(batch.micro_batches))
        with clock.phase("forward", on_device=True):
            result: LossSums = trainee.model(*on_device(part, ranks.device))
            total = total_loss(result) / max(1, batch.tokens)
        with clock.phase("backward", on_device=True):
            torch.autograd.backward(trainee.scaled(total))
        figures = (total, result.nll_sum, result.z_sum)
        sums[:BAD_NORMS] += torch.stack([figure.detach().double() for figure in figures])
    trainee.unscale_gradients()
    return sums


def update(
    trainee: Trainee,
    sums: Tensor,
    ranks: RankContext,
    clock: PhaseClock,
    *,
    share: float,
    remaining: float,
    clip: float | None,
) -> StepResult:
    """Makes the update unless the guard skips the step on every rank, and leaves no gradient either way.

    `share` of the peak learning rates, `remaining` share of the run for decays that are annealed, `clip` the largest
    norm of the gradient.
    """
    with clock.phase("optimizer", on_device=True):
        norm = trainee.gradient_norm()
        sums[BAD_NORMS] = ~torch.isfinite(norm)
        ranks.sum(sums)
        agreed_norm = torch.where(sums[BAD_NORMS] == 0, norm, torch.inf)
        reason = trainee.guard.decide(sums[OBJECTIVE], agreed_norm, torch.isfinite(sums[:BAD_NORMS]).all())
        rates = trainee.set_rates(share, remaining)
        trainee.update(norm, clip, reason)
        trainee.drop_gradients()
    with clock.phase("router", on_device=True):
        skip = Skip(int(reason))
        router = trainee.finish_routing(update=skip is Skip.NONE)
    return StepResult(sums, norm, skip, rates, router)
