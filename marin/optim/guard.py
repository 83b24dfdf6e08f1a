"""Decides whether a step's update is made, on the device and alike on every rank, and counts what is skipped by reason.

A step is skipped when its loss or gradient is not finite, and, where deviations are configured, when its loss or
gradient norm lies far above the last ones (OLMo-core calls that a skip-step optimizer). Whatever is compared has been
summed over all ranks before, so all ranks decide alike without asking each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from marin.optim.config import GuardConfig
from marin.optim.loss_scale import LossScale

LEAST_DEVIATION = 1e-6
"""The standard deviation counts as at least this share of the mean: a constant loss has none."""


class Skip(IntEnum):
    """Why an update is not made."""

    NONE = 0
    """It is made."""
    LOSS = 1
    """The loss is not finite."""
    GRADIENT = 2
    """The gradient is not finite."""
    OVERFLOW = 3
    """The gradient left the range of fp16; the loss is scaled less from the next step on."""
    LOSS_OUTLIER = 4
    """The loss is too far above the last ones."""
    NORM_OUTLIER = 5
    """The gradient norm is too far above the last ones."""

    @property
    def reason(self) -> str:
        """In words."""
        return _REASONS[self]

    @property
    def is_failure(self) -> bool:
        """True where too many in a row end the run."""
        return self in (Skip.LOSS, Skip.GRADIENT)


_REASONS = {
    Skip.NONE: "it is not skipped",
    Skip.LOSS: "its loss is not finite",
    Skip.GRADIENT: "its gradient is not finite",
    Skip.OVERFLOW: "its gradient left the range of fp16, so the loss is scaled less from here on",
    Skip.LOSS_OUTLIER: "its loss is an outlier",
    Skip.NORM_OUTLIER: "its gradient norm is an outlier",
}


class StepGuard:
    """The last losses and norms, and the counts of skipped steps. Holds tensors on one device."""

    def __init__(self, config: GuardConfig, device: torch.device | str, scale: LossScale | None = None) -> None:
        self.config = config
        self.scale = scale
        self.counts = dict.fromkeys((reason for reason in Skip if reason is not Skip.NONE), 0)
        # The last place is where what must not count is written, so that nothing is asked of the device.
        self._recent = torch.zeros(2, config.window + 1, dtype=torch.float64, device=device)
        self._seen = torch.zeros((), dtype=torch.int64, device=device)

    @torch.no_grad()
    def decide(self, loss: Tensor, norm: Tensor, finite: Tensor) -> Tensor:
        """The `Skip` of a step as a 0-d integer tensor; to be called once a step.

        `loss` and `norm` are the step's over all ranks, 0-d; `finite` says whether everything about the loss is
        finite on every rank. An outlier joins the last losses and norms as the limit that it passed: one does not hide
        the next, and yet a level that lasts becomes ordinary.
        """
        values = torch.stack((loss.double(), norm.double()))
        good_loss, good_norm = finite & torch.isfinite(values[0]), torch.isfinite(values[1])
        reason = torch.zeros_like(self._seen)
        if self.config.deviations is not None:
            limits = self._limits(self.config.deviations)
            outlier = values > limits
            reason = torch.where(outlier[1], int(Skip.NORM_OUTLIER), reason)
            reason = torch.where(outlier[0], int(Skip.LOSS_OUTLIER), reason)
            self._remember(torch.minimum(values, limits), good_loss & good_norm)
        bad_gradient = torch.full_like(self._seen, int(Skip.GRADIENT))
        if self.scale is not None:
            bad_gradient = torch.where(self.scale.can_fall(), int(Skip.OVERFLOW), bad_gradient)
            self.scale.update(good_norm | ~good_loss)
        reason = torch.where(good_norm, reason, bad_gradient)
        return torch.where(good_loss, reason, int(Skip.LOSS))

    def count(self, reason: Skip) -> None:
        """Note why a step was skipped; nothing for one that was made."""
        if reason is not Skip.NONE:
            self.counts[reason] += 1

    def figures(self) -> dict[str, Any]:
        """For the metrics line: steps skipped so far by reason."""
        return {"skips": {reason.name.lower(): count for reason, count in self.counts.items()}}

    def state(self) -> dict[str, Any]:
        """What a resumed run must know, as JSON; equal on every rank."""
        seen = int(self._seen)
        order = [step % self.config.window for step in range(max(0, seen - self.config.window), seen)]
        losses, norms = self._recent.tolist()
        return {
            "counts": {reason.name.lower(): count for reason, count in self.counts.items()},
            "losses": [losses[place] for place in order],
            "norms": [norms[place] for place in order],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state`; a shorter window takes the newest values."""
        self.counts = {reason: int(state["counts"].get(reason.name.lower(), 0)) for reason in self.counts}
        recent = [values[-self.config.window :] for values in (state["losses"], state["norms"])]
        self._recent.zero_()
        self._recent[:, : len(recent[0])] = torch.tensor(recent, dtype=torch.float64)
        self._seen.fill_(len(recent[0]))

    def _limits(self, deviations: float) -> Tensor:
        """[2] the largest loss and norm that are no outliers; infinite until half of the window is known."""
        window = self.config.window
        known = torch.arange(window, device=self._seen.device) < self._seen
        count = self._seen.clamp(max=window).double()
        values = self._recent[:, :window] * known
        mean = values.sum(1) / count.clamp(min=1)
        squares = ((values - mean.unsqueeze(1)) * known).square().sum(1)
        deviation = (squares / (count - 1).clamp(min=1)).sqrt()
        limits = mean + deviations * torch.maximum(deviation, LEAST_DEVIATION * mean.abs())
        return torch.where(self._seen >= max(2, window // 2), limits, torch.inf)

    def _remember(self, values: Tensor, good: Tensor) -> None:
        place = torch.where(good, self._seen % self.config.window, self.config.window)
        self._recent.index_copy_(1, place.view(1), values.unsqueeze(1))
        self._seen += good


def step_unless(optimizer: Optimizer, skip: Tensor) -> None:
    """One step of any optimizer of `build_optimizer` that changes nothing where `skip` (0-d) is not zero.

    On the CPU its value is looked at; elsewhere the step is enqueued and reads it on the device. Before the first
    update it is looked at everywhere, so that an optimizer has state exactly when it has made one.
    """
    if skip.device.type == "cpu" or not optimizer.state:
        if not bool(skip):
            optimizer.step()
        return
    vars(optimizer).update(found_inf=(skip != 0).float(), grad_scale=None)
    try:
        optimizer.step()
    finally:
        vars(optimizer).update(found_inf=None)


def failures_in_a_row(before: int, reasons: Iterable[Skip]) -> int:
    """Consecutive failures after steps that ended for `reasons`, when there were `before` already.

    An overflow says nothing about the numbers: it neither counts nor ends a row.
    """
    for reason in reasons:
        if reason is not Skip.OVERFLOW:
            before = before + 1 if reason.is_failure else 0
    return before
