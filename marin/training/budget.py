"""A run's FLOPs by the model's own formula, and a run of another length that costs a given number of them.

Imports nothing heavy.
"""

from __future__ import annotations

import bisect
from dataclasses import replace

from marin.model.accounting import flops_per_token
from marin.model.config import ModelConfig
from marin.training.config import TrainingConfig


def sequence_flops(model: ModelConfig) -> int:
    """FLOPs of forward and backward for one sequence, every place of it counted."""
    return flops_per_token(model) * model.sequence_length


def run_flops(model: ModelConfig, training: TrainingConfig) -> int:
    """FLOPs of a whole run: :func:`marin.model.accounting.flops_per_token` times the places of all its sequences."""
    return sequence_flops(model) * training.sequences


def with_flops(model: ModelConfig, training: TrainingConfig, flops: float) -> TrainingConfig:
    """The same run with the number of steps that comes nearest to `flops`; at most half a step is between them.

    Raises ValueError when the budget is below half of the first step.
    """
    wanted = flops / sequence_flops(model)
    batches = training.batches
    if wanted < batches.size(0) / 2:
        raise ValueError(
            f"a budget of {flops:.3g} FLOPs is less than half a step of {sequence_flops(model) * batches.size(0):.3g}: "
            "give more, or lower training.batch_sequences"
        )
    most = round(wanted / min(batches.sizes)) + 1
    above = bisect.bisect_left(range(most), wanted, key=batches.first)
    before = max(1, above - 1)
    steps = before if wanted - batches.first(before) <= batches.first(above) - wanted else above
    return replace(training, steps=max(1, steps))
