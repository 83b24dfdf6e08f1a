"""The hooks that watch a run, in their order: figures first, then what listens to the lines, the watchdog last."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marin.execution import StepError
from marin.training.config import TrainingConfig
from marin.training.hooks import Hook
from marin.training.watch.activations import ActivationRanges
from marin.training.watch.alerting import Alerting
from marin.training.watch.checksums import Checksums
from marin.training.watch.figures import GroupNorms, StepFigures
from marin.training.watch.live import LiveLines
from marin.training.watch.numerics import NumericsDebugger, NumericsGuard
from marin.training.watch.profile import Profile
from marin.training.watch.rules import PACKAGED, read_rules
from marin.training.watch.wandb import Wandb
from marin.training.watch.watchdog import Watchdog
from marin.training.watch.webhook import Webhook

if TYPE_CHECKING:
    from marin.training.loop import RunView
    from marin.training.process_group import RankContext


def watch_hooks(training: TrainingConfig, ranks: RankContext, run: RunView, name: str) -> list[Hook]:
    """The hooks of `training.watch`, the profile and the numerics guard; a collective. The watchdog watches from here
    on. `name` is what alerts call the run.
    """
    config, state = training.watch, run.state
    life = ranks.ranks.from_first(new_life)
    every = 1 if training.debug_numerics else config.activations_every
    hooks: list[Hook] = [
        StepFigures(life),
        GroupNorms(config.norms_every),
        ActivationRanges(every),
        Checksums(config.checksums_every, config.checksum_difference),
        NumericsDebugger(state) if training.debug_numerics else NumericsGuard(state),
    ]
    if ranks.rank == 0:
        hooks += _on_the_first_rank(training, state, life, name)
    if config.stall is not None:
        watchdog = Watchdog(
            config.stall,
            state,
            rank=ranks.rank,
            world_size=ranks.world_size,
            life=life,
            give_up=getattr(run, "give_up", None),
        )
        watchdog.begin()
        hooks.append(watchdog)
    return hooks


def _on_the_first_rank(training: TrainingConfig, state: Any, life: str, name: str) -> list[Hook]:
    config = training.watch
    hooks: list[Hook] = []
    live = LiveLines(state, life, config.live_seconds) if config.live_seconds else None
    if live is not None:
        hooks.append(live)
    if training.profile is not None:
        hooks.append(Profile(training.profile, state))
    if config.wandb is not None:
        facts = {"steps": training.steps, "batch_sequences": training.batch_sequences}
        hooks.append(Wandb(config.wandb, run=name, facts=facts))
    hooks.append(
        Alerting(
            read_rules(Path(config.alerts) if config.alerts else PACKAGED),
            run=name,
            steps=training.steps,
            webhook=_webhook(training),
            sampled_at=(lambda: live.flushed_at) if live is not None else None,
        )
    )
    return hooks


def _webhook(training: TrainingConfig) -> Webhook | None:
    if training.watch.webhook is None:
        return None
    try:
        return Webhook(training.watch.webhook.value())
    except ValueError as error:
        raise StepError(f"watch.webhook: {error}") from error


def new_life() -> str:
    """A name for one life of the gang; later ones sort after earlier ones."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:6]}"
