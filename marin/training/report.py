"""What people are told of a step: its line of the metrics, the log, the progress of the run."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from marin.training.global_batch import GlobalBatch
from marin.training.throughput import DeviceSeconds
from marin.training.train_step import LOG_PARTITION, StepResult

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class MadeStep:
    """A step that was made or skipped, its figures where they were computed.

    Attributes:
        step: from 1.
        time: seconds since 1970 at its end.
        sequences: of the global batch.
        seconds: wall time of the step and its phases, by name.
        loader_speed: tokens that one loader thread of this rank reads a second.
        added: what hooks add to the line.
    """

    step: int
    time: float
    batch: GlobalBatch
    result: StepResult
    sequences: int
    seconds: dict[str, Any]
    loader_speed: float
    added: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Speed:
    """From tokens a second to the share of what the processors can do.

    Attributes:
        flops_per_token: of the model, forward and backward.
        peak_flops: measured FLOP/s of all ranks together.
    """

    flops_per_token: int
    peak_flops: float


def metrics_line(made: MadeStep, *, tokens_total: int, skipped_steps: int, speed: Speed) -> dict[str, Any]:
    """The step's figures by name, for the metrics log; reads them from the device.

    `tokens_total` and `skipped_steps` are those of the run with this step.
    """
    batch, result = made.batch, made.result
    objective, nll, log_partition = result.sums[: LOG_PARTITION + 1].tolist()
    tokens, seconds = max(1, batch.tokens), made.seconds["step"]
    return {
        "time": made.time,
        "loss": nll / tokens,
        "objective": objective,
        "log_partition_squared": log_partition / tokens,
        "learning_rate": result.rates,
        "gradient_norm": result.norm.item(),
        "skipped": not result.made,
        "skipped_steps": skipped_steps,
        "tokens": batch.tokens,
        "tokens_total": tokens_total,
        "tokens_per_s": batch.tokens / seconds,
        "mfu": batch.tokens / seconds * speed.flops_per_token / speed.peak_flops,
        "seconds": as_numbers(made.seconds),
        "memory_gb": batch.memory_bytes / 1e9,
        "sequences": made.sequences,
        "data": {"stall_seconds": batch.stall_seconds, "tokens_per_s": made.loader_speed},
        "mixture": batch.mixture,
        "router": result.router,
        **{name: as_numbers(figure) for name, figure in made.added.items()},
    }


def tell_people(step: int, steps: int, line: Mapping[str, Any], every: int, progress: Callable[..., None]) -> None:
    """The progress of the run, and a line of the log for the first, the last and `every` so manyth step."""
    shown = {name: line[name] for name in ("loss", "tokens_per_s") if math.isfinite(line[name])}
    progress(step, steps, "steps", **shown)
    if step % every == 0 or step in (1, steps):
        logger.info(
            "step %d of %d: loss %.4f, gradient norm %.3f, %.0f tokens/s, MFU %.1f%%",
            step,
            steps,
            line["loss"],
            line["gradient_norm"],
            line["tokens_per_s"],
            100 * line["mfu"],
        )


def as_numbers(figure: Any) -> Any:
    """A figure with its tensors and the device's times as plain numbers."""
    if isinstance(figure, Tensor):
        return figure.tolist()
    if isinstance(figure, DeviceSeconds):
        return figure.item()
    if isinstance(figure, Mapping):
        return {name: as_numbers(value) for name, value in figure.items()}
    if isinstance(figure, list | tuple):
        return [as_numbers(value) for value in figure]
    return figure
