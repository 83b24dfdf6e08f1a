"""Where a gang's process enters. Imports torch only when it is called, so that the dispatching step can name it
cheaply.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from marin.checkpoint.completeness import FoundCheckpoint
from marin.checkpoint.layout import FINISH_MARK
from marin.execution import current_run, derive_seed
from marin.training.environment import RankEnvironment
from marin.training.job import PermanentCheckpoint, PublishedFile, TrainingJob, TrainingOutcome

if TYPE_CHECKING:
    from marin.training.loop import RunView


def train_rank(job: TrainingJob) -> TrainingOutcome:
    """One rank of a run, from joining the gang to the last step; resumes whatever an earlier gang left.

    The outcome is the same on every rank, but for the metrics' segments, which rank 0 alone has.
    """
    return train(job, current_run())


def train(job: TrainingJob, run: RunView) -> TrainingOutcome:
    """`train_rank` with the run around it given by hand."""
    from marin.model.accounting import flops_per_token
    from marin.tokens.mixture.loader import MixtureLoader
    from marin.tokens.shards.streaming import BlockCache
    from marin.training.baseline import unigram_losses
    from marin.training.elastic import plan_for
    from marin.training.hooks import build_hooks
    from marin.training.loop import TrainingLoop
    from marin.training.origin import Origin, ShiftedSequences
    from marin.training.process_group import process_group
    from marin.training.trainee import build_trainee
    from marin.training.validation import heldout_texts

    environment = RankEnvironment.read()
    job = replace(job, training=plan_for(job.training, job.model, environment.world_size))
    length = job.model.sequence_length
    origin = Origin.read(job.init, job.init_config) if job.init is not None else None
    offset = 0
    if origin is not None:
        origin.check(job.identity())
        offset = origin.data_offset(job.training.batches)
    loader = MixtureLoader(
        job.mixture,
        length,
        derive_seed(job.training.seed, "data order"),
        job.training.sequences + offset,
        BlockCache.of_this_machine(job.training.loader.cache_bytes),
    )
    with process_group(environment) as ranks:
        loop = TrainingLoop(
            model=job.model,
            training=job.training,
            identity=job.identity(),
            source=ShiftedSequences(loader, offset) if offset else loader,
            components=loader.names,
            heldout=heldout_texts(job.heldout, job.mixture, length),
            trainee=build_trainee(job.model, job.training, ranks),
            ranks=ranks,
            run=run,
            hooks=build_hooks(job, ranks, run),
            origin=origin,
        )
        result = loop.run()
    target_counts = {source: loss.target_counts for source, loss in result.validation.items()}
    return TrainingOutcome(
        first_step=origin.first_step if origin is not None else 0,
        step=result.progress.step,
        tokens=result.progress.tokens,
        skipped_steps=result.progress.step - result.progress.updates,
        checkpoint=published_files(result.checkpoint),
        permanent=tuple(
            PermanentCheckpoint(step=found.step, files=published_files(found)) for found in result.permanent
        ),
        metrics=result.progress.metrics,
        validations=result.progress.validations,
        unigram_losses=unigram_losses(job.mixture, loader.epochs(), target_counts, job.model.vocab_size),
        peak_flops=result.peak_flops,
        flops_per_token=flops_per_token(job.model),
    )


def published_files(checkpoint: FoundCheckpoint) -> tuple[PublishedFile, ...]:
    """Every file of a checkpoint with what is known of it, the finish mark included."""
    digests = {file.name: file.sha256 for file in checkpoint.mark.files} | {FINISH_MARK: None}
    return tuple(PublishedFile(name=name, key=checkpoint.keys[name], sha256=digests[name]) for name in sorted(digests))
