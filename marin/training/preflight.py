"""What can be known to be wrong before a single rank starts. Imports nothing heavy."""

from __future__ import annotations

import logging
from dataclasses import replace

from marin.execution import StepError
from marin.model.config import ModelConfig
from marin.tokens.tokenizer.artifacts import Tokenizer
from marin.training.job import TrainingJob

logger = logging.getLogger(__name__)


def fitted_model(model: ModelConfig, tokenizer: Tokenizer) -> ModelConfig:
    """The model with the tokenizer's vocabulary, when the training text gave fewer entries than were asked for.

    Raises StepError when the tokenizer has more ids than the model has room for.
    """
    if tokenizer.vocab_size > model.vocab_size:
        raise StepError(
            f"model.vocab_size is {model.vocab_size}, but the tokenizer has {tokenizer.vocab_size} ids; "
            f"set model.vocab_size to at least {tokenizer.vocab_size}"
        )
    if tokenizer.vocab_size < model.vocab_size:
        logger.info("the model's vocabulary is the tokenizer's %d ids, not %d", tokenizer.vocab_size, model.vocab_size)
    return replace(model, vocab_size=tokenizer.vocab_size)


def check_job(job: TrainingJob, workers: int) -> None:
    """Raises StepError with every fault of the job on `workers` ranks: parallel plan, batch, empty inputs."""
    faults = []
    for check in (
        lambda: job.training.parallel.check(job.model, workers),
        lambda: job.training.micro_batches(workers),
    ):
        try:
            check()
        except ValueError as error:
            faults.append(f"training: {error}")
    if not any(shards.tokens for shards in job.heldout.values()):
        faults.append("no held-out source has a token: a run without a validation loss says nothing")
    if faults:
        raise StepError("the run cannot start:\n  " + "\n  ".join(faults))
    for source, shards in job.heldout.items():
        if not shards.tokens:
            logger.warning("the held-out source %r has no token and is left out of the validation loss", source)
