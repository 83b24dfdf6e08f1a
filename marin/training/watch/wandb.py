"""Metrics to Weights & Biases as well. The package is optional, and its troubles are never the run's."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from marin.training.hooks import Hook
from marin.training.tensorboard import scalars
from marin.training.watch.config import WandbConfig

if TYPE_CHECKING:
    from marin.training.loop import TrainingLoop

logger = logging.getLogger(__name__)


class Wandb(Hook):
    """Only rank 0 has one. The first error ends it, with one warning; the metrics log has everything anyway."""

    def __init__(self, config: WandbConfig, *, run: str, facts: Mapping[str, Any]) -> None:
        self.name = ""
        self._config = config
        self._name = run
        self._facts = dict(facts)
        self._run: Any = None

    def start(self, loop: TrainingLoop) -> None:
        try:
            import wandb
        except ImportError:
            logger.warning(
                "watch.wandb is set, but the package wandb is not installed; metrics go on without it. Install the "
                "extra: pip install 'marin[wandb]'"
            )
            return
        try:
            # One id for all lives of a run, so that they are one curve.
            self._run = wandb.init(
                project=self._config.project,
                name=self._name,
                id=re.sub(r"[^A-Za-z0-9]+", "-", self._name),
                mode=self._config.mode,
                resume="allow",
                config=self._facts,
            )
        except Exception as error:  # whatever the service or its client does
            logger.warning("W&B cannot be used, metrics go on without it: %s: %s", type(error).__name__, error)
            return
        loop.metrics.listen(self._line)

    def validated(self, summary: Mapping[str, Any]) -> None:
        self._log({f"validation/{tag}": value for tag, value in scalars(summary)}, int(summary["step"]))

    def close(self) -> None:
        run, self._run = self._run, None
        if run is not None:
            try:
                run.finish()
            except Exception as error:  # as above
                logger.warning("W&B did not finish: %s: %s", type(error).__name__, error)

    def _line(self, line: Mapping[str, Any]) -> None:
        self._log(dict(scalars(line)), int(line["step"]))

    def _log(self, figures: Mapping[str, float], step: int) -> None:
        if self._run is None:
            return
        try:
            self._run.log(dict(figures), step=step)
        except Exception as error:  # as above
            logger.warning("W&B takes no more metrics: %s: %s", type(error).__name__, error)
            self._run = None
