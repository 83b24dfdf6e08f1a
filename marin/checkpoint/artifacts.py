"""The artifact that pretraining returns."""

from __future__ import annotations

from dataclasses import dataclass

from marin.execution import Artifact
from marin.model.config import ModelConfig


@dataclass(frozen=True, kw_only=True)
class Checkpoint(Artifact):
    """A trained model with all of its training state, self-contained: its files are outputs of the step that made it.

    Losses are in nats per token, over all real tokens of the held-out shards. Files: `checkpoint/…` (read by
    `load_model`), `metrics.jsonl` (one line a step), `validation.json`, and TensorBoard's event file under
    `tensorboard/`.
    """

    model: ModelConfig
    step: int
    tokens: int
    """Real tokens trained on."""
    skipped_steps: int
    training_loss: float
    """Mean over the last tenth of the steps."""
    validation_loss: float
    unigram_loss: float
    """Of a unigram model fitted on the training tokens as the mixture used them, on the same validation tokens."""
    validation_losses: dict[str, float]
    """By held-out source."""
    unigram_losses: dict[str, float]
    validation_tokens: dict[str, int]
