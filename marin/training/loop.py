"""What one rank does from its first step to its last.

Order within a run: after every step that is due the state is saved, and only then is the held-out loss measured, so
that a failing validation costs no training. A step is counted whether its update was made or skipped; schedule and
data position follow the count.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from marin.checkpoint.completeness import FoundCheckpoint
from marin.checkpoint.progress import Progress
from marin.checkpoint.state_folder import StateFolder
from marin.execution import StepError, derive_seed
from marin.model.accounting import flops_per_token
from marin.model.config import ModelConfig
from marin.model.outputs import LossSums
from marin.tokens.mixture.batches import rank_requests
from marin.tokens.mixture.config import LoaderConfig
from marin.tokens.mixture.packing import Batch
from marin.tokens.mixture.prefetch import Prefetcher
from marin.training.config import TrainingConfig
from marin.training.hooks import Hook, Hooks
from marin.training.metrics import MetricsLog
from marin.training.process_group import RankContext
from marin.training.saving import Saver
from marin.training.tensors import on_device
from marin.training.throughput import PhaseClock, matmul_peak, peak_memory_bytes
from marin.training.trainee import Trainee
from marin.training.validation import HeldOut, SourceLoss, summarise, validate

logger = logging.getLogger(__name__)


class RunView(Protocol):
    """What the loop needs of the run around it; `current_run()` satisfies it."""

    @property
    def state(self) -> StateFolder: ...

    def check_lease(self) -> None: ...

    def progress(self, done: float, total: float | None = None, unit: str = "docs", **figures: float) -> None: ...


class SequenceSource(Protocol):
    """Where training sequences come from: a pure function of their global number."""

    def batch(self, first: int, count: int) -> Batch: ...


@dataclass(frozen=True)
class LoopResult:
    """A finished run as rank 0 sees it."""

    progress: Progress
    checkpoint: FoundCheckpoint
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
        self.metrics = MetricsLog(run.state)
        self.step = 0
        self.tokens = 0
        self.updates = 0
        self.skipped_in_a_row = 0
        self.validations: list[dict[str, Any]] = []
        self.last_validation: Mapping[str, SourceLoss] = {}
        self.peak_flops = 0.0
        self.saver = Saver(self, run, identity)

    def run(self) -> LoopResult:
        """Goes on from the newest complete checkpoint, or from the start, to the last step."""
        torch.manual_seed(derive_seed(self.training.seed, f"rank {self.ranks.rank}"))
        saved = self.saver.resume()
        peak = torch.tensor(matmul_peak(self.ranks.device, self.trainee.compute_dtype), dtype=torch.float64)
        self.peak_flops = float(self.ranks.sum(peak))
        requests = rank_requests(
            self.batches,
            self.step,
            self.training.steps,
            self.ranks.rank,
            self.ranks.world_size,
            self.training.micro_batch_sequences,
        )
        try:
            self.hooks.start(self)
            with Prefetcher(self.source, requests, self.training.loader) as self.ahead:
                return self._run_to_the_end(saved)
        except BaseException as error:
            self.hooks.failed(error)
            raise
        finally:
            self.hooks.close()

    def _run_to_the_end(self, saved: FoundCheckpoint | None) -> LoopResult:
        grid = self.training.validation.steps(self.training.steps)
        while True:
            if self.step in grid and self.step not in {done["step"] for done in self.validations}:
                self.measure_heldout()
            if self.step >= self.training.steps:
                break
            self.train_step()
            if reason := self.saver.due(self.step):
                saved = self.saver.save(self.step, reason)
        assert saved is not None
        return LoopResult(
            progress=self.saver.snapshot(),
            checkpoint=saved,
            validation=self.last_validation,
            peak_flops=self.peak_flops,
        )

    # State

    def parts(self) -> dict[str, dict[str, Any]]:
        """State of the stateful parts beside the model, by name: what a checkpoint keeps of them."""
        return self.hooks.states()

    def restore_parts(self, parts: Mapping[str, dict[str, Any]]) -> None:
        """Inverse of `parts`; raises StepError for a name that no part of this run has."""
        unknown = sorted(parts.keys() - self.parts().keys())
        if unknown:
            raise StepError(
                f"the checkpoint has the state of {', '.join(unknown)}, which this run does not have; "
                "go on with the settings that it was made with"
            )
        self.hooks.restore(parts)

    # One step

    def train_step(self) -> None:
        """One step over the global batch: gradients, the ranks' agreement that they are finite, update, metrics."""
        started = time.perf_counter()
        self.hooks.before_step(self.step + 1)
        with self.clock.phase("data"):
            batches = self._batches(self.step)
            tokens, mixture = self._global_counts(batches)
        sums = torch.zeros(4, dtype=torch.float64)
        sums[3] = peak_memory_bytes(self.ranks.device)
        for batch in batches:
            with self.clock.phase("forward"):
                result: LossSums = self.trainee.model(*on_device(batch, self.ranks.device))
                total = self.total_loss(self.step + 1, result) / max(1, tokens)
            with self.clock.phase("backward"):
                torch.autograd.backward(total)
            sums[:3] += torch.stack([part.detach().double().cpu() for part in (total, result.nll_sum, result.z_sum)])
        with self.clock.phase("optimizer"):
            self.ranks.sum(sums)
            self.hooks.after_backward(self.step + 1)
            norm = self.trainee.gradient_norm()
            finite = not self.ranks.largest(not (math.isfinite(norm) and bool(torch.isfinite(sums).all())))
            rates = self.trainee.set_rates(self.training.schedule.share(self.step), 1 - self.step / self.training.steps)
            if finite:
                self.trainee.update(norm, self.training.gradient_clip)
            self.trainee.drop_gradients()
        with self.clock.phase("router"):
            router = self.trainee.finish_routing(update=finite)
        self._count(tokens, finite)
        self.hooks.after_update(self.step)
        added = self.hooks.figures(self.step)
        read = self.ahead.take()
        stall = self.ranks.largest(round(read.stall_seconds * 1e6)) / 1e6
        seconds = time.perf_counter() - started
        if self.ranks.rank == 0:
            self._report(
                {
                    "time": time.time(),
                    "loss": float(sums[1]) / max(1, tokens),
                    "objective": float(sums[0]),
                    "log_partition_squared": float(sums[2]) / max(1, tokens),
                    "learning_rate": rates,
                    "gradient_norm": norm,
                    "skipped": not finite,
                    "skipped_steps": self.step - self.updates,
                    "tokens": tokens,
                    "tokens_total": self.tokens,
                    "tokens_per_s": tokens / seconds,
                    "mfu": tokens / seconds * flops_per_token(self.model_config) / self.peak_flops,
                    "seconds": {"step": seconds, **self.clock.take()},
                    "memory_gb": float(sums[3]) / 1e9,
                    "sequences": self.batches.size(self.step - 1),
                    "data": {"stall_seconds": stall, "tokens_per_s": read.tokens_per_s},
                    "mixture": mixture,
                    "router": router,
                    **added,
                }
            )
        if self.skipped_in_a_row >= self.training.skips_in_a_row:
            raise StepError(
                f"{self.skipped_in_a_row} steps in a row, the last of them step {self.step}, had a loss or gradient "
                "that is not finite; the weights are those of before them. Lower the learning rate, clip gradients, or "
                "look at the data."
            )

    def _count(self, tokens: int, finite: bool) -> None:
        self.step += 1
        if finite:
            self.updates += 1
            self.tokens += tokens
            self.skipped_in_a_row = 0
            return
        self.skipped_in_a_row += 1
        if self.ranks.rank == 0:
            logger.warning("step %d is skipped: its loss or gradient is not finite", self.step)

    def _report(self, figures: dict[str, Any]) -> None:
        self.metrics.append(self.step, figures)
        total = self.training.steps
        shown = {name: figures[name] for name in ("loss", "tokens_per_s") if math.isfinite(figures[name])}
        self._run.progress(self.step, total, "steps", **shown)
        if self.step % self.training.log_every == 0 or self.step in (1, total):
            logger.info(
                "step %d of %d: loss %.4f, gradient norm %.3f, %.0f tokens/s, MFU %.1f%%",
                self.step,
                total,
                figures["loss"],
                figures["gradient_norm"],
                figures["tokens_per_s"],
                100 * figures["mfu"],
            )

    def _global_counts(self, batches: Sequence[Batch]) -> tuple[int, dict[str, int]]:
        """Real tokens of the global batch, and its sequences by mixture component."""
        counts = np.zeros(1 + len(self.components), dtype=np.int64)
        for batch in batches:
            counts[0] += int(batch.loss_mask.sum())
            counts[1:] += np.bincount(batch.components, minlength=len(self.components))
        summed = self.ranks.sum(torch.from_numpy(counts)).tolist()
        return summed[0], dict(zip(self.components, summed[1:], strict=True))

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
        if self.ranks.rank == 0 and summary["loss"] is not None:
            logger.info("step %d: validation loss %.4f nats per token", self.step, summary["loss"])

    def _validate(self) -> dict[str, SourceLoss]:
        return validate(
            self.trainee.model,
            self.heldout,
            self.ranks,
            batch=self.micro_batches[0][1],
            sequences=self.training.validation.sequences,
            vocab_size=self.model_config.vocab_size,
        )
