"""Where a gang's process enters. Imports torch only when it is called, so that the dispatching step can name it
cheaply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from marin.execution import current_run
from marin.training.environment import RankEnvironment
from marin.training.job import PublishedFile, TrainingJob, TrainingOutcome

if TYPE_CHECKING:
    from marin.training.loop import LoopResult, RunView


def train_rank(job: TrainingJob) -> TrainingOutcome:
    """One rank of a run, from joining the gang to the last step; resumes whatever an earlier gang left. The same on
    every rank.
    """
    return train(job, current_run())


def train(job: TrainingJob, run: RunView) -> TrainingOutcome:
    """`train_rank` with the run around it given by hand."""
    from marin.tokens.mixture.loader import MixtureLoader, packed_batches
    from marin.training.loop import TrainingLoop
    from marin.training.process_group import process_group
    from marin.training.trainee import build_trainee

    length = job.model.sequence_length
    with process_group(RankEnvironment.read()) as ranks:
        loop = TrainingLoop(
            model=job.model,
            training=job.training,
            identity=job.identity(),
            source=MixtureLoader(job.mixture, length, job.training.seed, job.training.sequences),
            components=tuple(job.mixture.components),
            heldout={
                source: lambda size, shards=shards: packed_batches(shards, length, size)
                for source, shards in job.heldout.items()
            },
            trainee=build_trainee(job.model, job.training, ranks),
            ranks=ranks,
            run=run,
        )
        result = loop.run()
    return outcome_of(job, result)


def outcome_of(job: TrainingJob, result: LoopResult) -> TrainingOutcome:
    """What the dispatching step needs of a finished run."""
    from marin.model.accounting import flops_per_token
    from marin.training.baseline import unigram_losses

    digests = {file.name: file.sha256 for file in result.checkpoint.mark.files}
    files = tuple(
        PublishedFile(name=name, key=key, sha256=digests.get(name))
        for name, key in sorted(result.checkpoint.keys.items())
        if name in digests or name == "COMPLETE.json"
    )
    return TrainingOutcome(
        step=result.progress.step,
        tokens=result.progress.tokens,
        skipped_steps=result.progress.step - result.progress.updates,
        checkpoint=files,
        metrics=result.progress.metrics,
        validations=result.progress.validations,
        unigram_losses=unigram_losses(job, {source: loss.target_counts for source, loss in result.validation.items()}),
        peak_flops=result.peak_flops,
        flops_per_token=flops_per_token(job.model),
    )
