"""What one rank does from its first step to its last.

Order within a run: after every step that is due the state is saved, and only then is the held-out loss measured, so
that a failing validation costs no training. A request to stop is honoured at the border of every step and of every
batch of a validation: the state after the last finished step is saved, and `Preempted` ends the run. A step is counted
whether its update was made or skipped; schedule and data position follow the count.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from marin.checkpoint.completeness import FoundCheckpoint
from marin.checkpoint.progress import Progress
from marin.checkpoint.state_folder import StateFolder
from marin.execution import Preempted, StepError, derive_seed
from marin.model.accounting import flops_per_token
from marin.model.config import ModelConfig
from marin.model.outputs import LossSums
from marin.optim.guard import Skip, failures_in_a_row
from marin.tokens.mixture.batches import rank_requests
from marin.tokens.mixture.config import LoaderConfig
from marin.tokens.mixture.packing import Batch
from marin.tokens.mixture.prefetch import Prefetcher
from marin.training.config import TrainingConfig
from marin.training.global_batch import agreed_batch
from marin.training.hooks import Hook, Hooks
from marin.training.metrics import MetricsLog
from marin.training.origin import PART as ORIGIN
from marin.training.origin import Origin
from marin.training.process_group import RankContext
from marin.training.report import MadeStep, Speed, metrics_line, tell_people
from marin.training.saving import Saver
from marin.training.stopping import StopAgreed, agree_to_stop
from marin.training.throughput import PhaseClock, matmul_peak
from marin.training.train_step import gradients, update
from marin.training.trainee import LOSS_SCALE, SKIP_GUARD, Trainee
from marin.training.validation import HeldOut, SourceLoss, summarise, validate

logger = logging.getLogger(__name__)


class RunView(Protocol):
    """What the loop needs of the run around it; `current_run()` satisfies it."""

    @property
    def state(self) -> StateFolder: ...

    def check_lease(self) -> None: ...

    def stop_requested(self) -> str | None: ...

    def progress(self, done: float, total: float | None = None, unit: str = "docs", **figures: float) -> None: ...


class SequenceSource(Protocol):
    """Where training sequences come from: a pure function of their global number."""

    def batch(self, first: int, count: int) -> Batch: ...


@dataclass(frozen=True)
class LoopResult:
    """A finished run as rank 0 sees it."""

    progress: Progress
    checkpoint: FoundCheckpoint
    permanent: tuple[FoundCheckpoint, ...]
    validation: Mapping[str, SourceLoss]
    peak_flops: float


class TrainingLoop:
    """One run on one rank. All ranks make one with equal arguments and call `run` together."""

    def __init__(
        self,
        *,
        model: ModelConfig,
        training: TrainingConfig,
        identity: Mapping[str, Any],
        source: SequenceSource,
        components: Sequence[str],
        heldout: HeldOut,
        trainee: Trainee,
        ranks: RankContext,
        run: RunView,
        hooks: Sequence[Hook] = (),
        origin: Origin | None = None,
    ) -> None:
        self.model_config = model
        self.training = training
        self.identity = dict(identity)
        self.source = source
        self.components = tuple(components)
        self.heldout = heldout
        self.trainee = trainee
        self.ranks = ranks
        self._run = run
        self.hooks = Hooks(hooks)
        self.clock = PhaseClock(ranks.device)
        self.micro_batches = training.micro_batches(ranks.world_size)
        self.batches = training.batches
        self.ahead = Prefetcher(source, iter(()), LoaderConfig(ahead=0))
        self.origin = origin
        self.first_step = origin.first_step if origin is not None else 0
        self.begins_with_state = origin is not None and origin.takes_optimizer
        self.metrics = MetricsLog(run.state, first=self.first_step + 1)
        self.step = 0
        self.tokens = 0
        self.updates = 0
        self.skipped_in_a_row = 0
        self.validations: list[dict[str, Any]] = []
        self.last_validation: Mapping[str, SourceLoss] = {}
        self.last_skip = Skip.NONE
        self.evidence = ""
        """What a hook found out about the last steps that were not finite, for the error that ends the run."""
        self.speed = Speed(flops_per_token(model), float("nan"))
        self._unsettled: MadeStep | None = None
        self._saved_step = 0
        self.saver = Saver(self, run, identity)

    def run(self) -> LoopResult:
        """Goes on from the newest complete checkpoint, or from the start, to the last step."""
        torch.manual_seed(derive_seed(self.training.seed, f"rank {self.ranks.rank}"))
        try:
            if self.saver.resume() is None and self.origin is not None:
                self.origin.begin(self)
            self._saved_step = self.step
            peak = torch.tensor(matmul_peak(self.ranks.device, self.trainee.compute_dtype), dtype=torch.float64)
            self.speed = Speed(flops_per_token(self.model_config), float(self.ranks.sum(peak)))
            requests = rank_requests(
                self.batches,
                self.step,
                self.training.last_step,
                self.ranks.rank,
                self.ranks.world_size,
                self.training.micro_batch_sequences,
            )
            self.saver.rehearse()
            self.hooks.start(self)
            with Prefetcher(self.source, requests, self.training.loader) as self.ahead:
                return self._run_to_the_end()
        except StopAgreed as stop:
            self._save_to_leave()
            raise Preempted(f"stopped after step {self.step}: {stop}") from None
        except BaseException as error:
            self.hooks.failed(error)
            raise
        finally:
            self.saver.close()
            self.hooks.close()

    def _run_to_the_end(self) -> LoopResult:
        grid = self.training.validated_steps
        while True:
            if self.step in grid and self.step not in {done["step"] for done in self.validations}:
                self.measure_heldout()
            if self.step >= self.training.last_step:
                break
            self.train_step()
            self.saver.poll()
            if (reason := self.saver.due(self.step)) and not self.training.debug_numerics:
                self._save(reason)
        self.saver.wait()
        assert self.saver.newest is not None
        return LoopResult(
            progress=self.saver.snapshot(),
            checkpoint=self.saver.newest,
            permanent=self.saver.permanent(),
            validation=self.last_validation,
            peak_flops=self.speed.peak_flops,
        )

    def _save(self, reason: str) -> None:
        self.settle()
        self.saver.save(self.step, reason)
        self._saved_step = self.step

    def _save_to_leave(self) -> None:
        """Leaves the state after the last finished step in the store, complete."""
        self.settle()
        if self.step > self._saved_step and not self.training.debug_numerics:
            self._save("before an early end")
        self.saver.leave()

    # State

    def parts(self) -> dict[str, dict[str, Any]]:
        """State of the stateful parts beside the model, by name: what a checkpoint keeps of them."""
        origin = {} if self.origin is None else {ORIGIN: self.origin.state(self.batches)}
        return self.hooks.states() | self.trainee.states() | origin

    def restore_parts(self, parts: Mapping[str, dict[str, Any]]) -> None:
        """Inverse of `parts`; raises StepError for a name that no part of this run has."""
        unknown = sorted(parts.keys() - self.hooks.states().keys() - {SKIP_GUARD, LOSS_SCALE, ORIGIN})
        if unknown:
            raise StepError(
                f"the checkpoint has the state of {', '.join(unknown)}, which this run does not have; "
                "go on with the settings that it was made with"
            )
        self.hooks.restore(parts)
        self.trainee.restore(parts)

    # One step

    def train_step(self) -> None:
        """One step over the next global batch, made or skipped, and its line of the metrics.

        On CUDA the line is written while the next step runs, so that no step waits for its own figures. Raises
        StopAgreed instead when the run is to end early.
        """
        started = time.perf_counter()
        step = self.step + 1
        self.hooks.before_step(step)
        with self.clock.phase("data"):
            batches = self._batches(self.step)
            read = self.ahead.take()
            batch = agreed_batch(batches, self.components, read, self.ranks, self._run.stop_requested())
        sums = gradients(self.trainee, batch, self.ranks, self.clock, lambda result: self.total_loss(step, result))
        self.hooks.after_backward(step)
        result = update(
            self.trainee,
            sums,
            self.ranks,
            self.clock,
            share=self.training.schedule.share(self.step),
            remaining=1 - self.step / max(1, self.training.steps - 1),
            clip=self.training.gradient_clip,
        )
        self.step = step
        self.last_skip = result.skip
        self.hooks.after_update(step)
        made = MadeStep(
            step=step,
            time=time.time(),
            batch=batch,
            result=result,
            sequences=self.batches.size(step - 1),
            seconds={"step": time.perf_counter() - started, **self.clock.take()},
            loader_speed=read.tokens_per_s,
            added={**self.hooks.figures(step), **self.saver.figures(), **self.trainee.figures()},
        )
        self.settle()
        self._unsettled = made
        if self.ranks.device.type != "cuda":
            self.settle()

    def settle(self) -> None:
        """Counts the last step and writes its line, if that was put off; called before its figures are needed."""
        made, self._unsettled = self._unsettled, None
        if made is None:
            return
        self._count(made)
        if self.ranks.rank == 0:
            skipped = made.step - self.updates
            line = metrics_line(made, tokens_total=self.tokens, skipped_steps=skipped, speed=self.speed)
            line |= self.trainee.guard.figures()
            self.metrics.append(made.step, line)
            tell_people(made.step, self.training.last_step, line, self.training.log_every, self._run.progress)
        if self.skipped_in_a_row >= self.training.skips_in_a_row:
            raise StepError(
                f"{self.skipped_in_a_row} steps in a row, the last of them step {made.step}, had a loss or gradient "
                "that is not finite; the weights are those of before them. Lower the learning rate, clip gradients, or "
                f"look at the data.{self.evidence}"
            )

    def _count(self, made: MadeStep) -> None:
        skip = made.result.skip
        self.trainee.guard.count(skip)
        self.skipped_in_a_row = failures_in_a_row(self.skipped_in_a_row, [skip])
        if made.result.made:
            self.updates += 1
            self.tokens += made.batch.tokens
        elif self.ranks.rank == 0:
            logger.warning("step %d is skipped: %s", made.step, skip.reason)

    def total_loss(self, step: int, result: LossSums) -> Tensor:
        """The sum that is differentiated; a seam for what must be added to it, or for a test to disturb."""
        return result.total_sum

    def _batches(self, step: int) -> list[Batch]:
        part = self.training.rank_sequences(self.ranks.world_size, step)
        first = self.batches.first(step) + self.ranks.rank * part
        micro_batches = self.training.micro_batches(self.ranks.world_size, step)
        return [self.ahead.batch(first + start, count) for start, count in micro_batches]

    # Held-out loss

    def measure_heldout(self) -> None:
        """Adds a validation after the current step to the record."""
        started = time.perf_counter()
        with self.clock.phase("validation"):
            self.last_validation = self._validate()
        summary = summarise(self.last_validation, self.step, started)
        self.validations.append(summary)
        self.hooks.validated(summary)
        if self.ranks.rank == 0:
            if summary["loss"] is not None:
                logger.info("step %d: validation loss %.4f nats per token", self.step, summary["loss"])
            elif summary["tokens"]:
                logger.warning("step %d: the validation loss is not finite", self.step)

    def _validate(self) -> dict[str, SourceLoss]:
        return validate(
            self.trainee.model,
            self.heldout,
            self.ranks,
            batch=self.micro_batches[0][1],
            sequences=self.training.validation.sequences,
            vocab_size=self.model_config.vocab_size,
            at_border=self._between_heldout_batches,
        )

    def _between_heldout_batches(self) -> None:
        self.clock.tick()
        agree_to_stop(self.ranks, self._run.stop_requested())
