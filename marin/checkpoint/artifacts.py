"""The artifact that pretraining returns."""

from __future__ import annotations

from dataclasses import dataclass

from marin.execution import Artifact
from marin.model.config import ModelConfig


@dataclass(frozen=True, kw_only=True)
class Checkpoint(Artifact):
    """A trained model with all of its training state, self-contained: its files are outputs of the step that made it.

    Losses are in nats per token, over all real tokens of the held-out shards. Files: `checkpoint/…` (read by
    `load_model`), `checkpoints/step-…/…` (the permanent ones, points to fork from), `metrics.jsonl` (one line a step),
    `validation.json`, `curve.svg`, and TensorBoard's event file under `tensorboard/`.
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
    permanent_steps: tuple[int, ...] = ()
    """Steps whose state is published too, as permanent checkpoints."""

    def present(self, places: dict[str, str]) -> str:
        """Lines for the console: what was trained, and the held-out loss beside that of token frequencies alone."""
        skipped = f", {self.skipped_steps} steps skipped as not finite" if self.skipped_steps else ""
        lines = [
            f"{self.tokens:,} tokens in {self.step:,} steps, training loss {self.training_loss:.4f}{skipped}",
            (
                f"validation loss {self.validation_loss:.4f} nats per token, "
                f"{self.unigram_loss - self.validation_loss:.4f} below the {self.unigram_loss:.4f} of a unigram model"
            ),
        ]
        for source, loss in sorted(self.validation_losses.items()):
            lines.append(f"  {source:24} {loss:8.4f}  unigram {self.unigram_losses[source]:8.4f}")
        return "\n".join(lines)
