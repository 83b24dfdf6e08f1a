"""Judges the alert rules over a run while it goes on, on rank 0; tells the log and a webhook."""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from marin.training.hooks import Hook
from marin.training.watch.evaluation import Change, Judge
from marin.training.watch.rules import FloorRise, Rule
from marin.training.watch.webhook import Webhook

if TYPE_CHECKING:
    from marin.training.loop import TrainingLoop

TICK_SECONDS = 10.0
BUSY_PHASES = ("validation", "checkpoint")
"""Phases in which no step can end; they have the time of a start."""
LEVELS = {"page": logging.ERROR, "look": logging.WARNING, "note": logging.INFO}

logger = logging.getLogger(__name__)


class Alerting(Hook):
    """Only rank 0 has one. `sampled_at` tells when the store last took metrics."""

    def __init__(
        self,
        rules: Sequence[Rule],
        *,
        run: str,
        steps: int,
        webhook: Webhook | None = None,
        sampled_at: Callable[[], float] | None = None,
        tick_seconds: float = TICK_SECONDS,
    ) -> None:
        self.name = ""
        self.judge = Judge(rules, steps)
        self._run = run
        self._webhook = webhook
        self._sampled_at = sampled_at
        self._tick_seconds = tick_seconds
        self._starting = True
        self._broken = False
        self._loop: TrainingLoop | None = None
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._tick, name="marin-alerts", daemon=True)

    def start(self, loop: TrainingLoop) -> None:
        """Fills the windows with the run's last lines, so that a damaged restore shows against what came before."""
        self._loop = loop
        longest = [rule.recent_lines + rule.trailing_lines for rule in self.judge.rules if isinstance(rule, FloorRise)]
        self.remember(loop.metrics.last_lines(max(longest, default=1)), loop.validations)
        self.judge.begin(time.time())
        loop.metrics.listen(self.line)
        self._thread.start()

    def remember(self, lines: Iterable[Mapping[str, Any]], validations: Iterable[Mapping[str, Any]]) -> None:
        """Takes what earlier processes of the run judged and told."""
        for line in lines:
            self.judge.line(line, silently=True)
        for summary in validations:
            self.judge.validation(summary)
        # What held then is told again if it still holds: the restart may have ended it, and nobody said so.
        self.judge.active.clear()

    def line(self, line: Mapping[str, Any]) -> None:
        """A step's line."""
        self._starting = False
        self._judge(lambda: self.judge.line(line))

    def validated(self, summary: Mapping[str, Any]) -> None:
        self._judge(lambda: self.judge.validation(summary))

    def close(self) -> None:
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._webhook is not None:
            self._webhook.close()

    def _tick(self) -> None:
        while not self._ending.wait(self._tick_seconds):
            busy = self._loop is not None and self._loop.clock.current in BUSY_PHASES
            sampled = self._sampled_at() if self._sampled_at is not None else None
            starting = self._starting or busy
            self._judge(functools.partial(self.judge.tick, time.time(), starting=starting, sampled=sampled))

    def _judge(self, take: Callable[[], Sequence[Change]]) -> None:
        """Whatever is wrong with a rule or a line, training goes on, without alerts from there on."""
        with self._lock:
            if self._broken:
                return
            try:
                self._tell(take())
            except Exception:
                self._broken = True
                logger.exception("alerts are judged no more; training goes on")

    def _tell(self, changes: Sequence[Change]) -> None:
        for change in changes:
            logger.log(LEVELS[change.rule.severity] if change.fired else logging.INFO, "%s", change)
            if self._webhook is not None:
                self._webhook.send(message(change, self._run))


def message(change: Change, run: str) -> dict[str, Any]:
    """A change as it is posted; `text` is what chat programs show."""
    return {
        "text": f"{run}: {change}",
        "run": run,
        "alert": change.rule.name,
        "severity": change.rule.severity,
        "state": "fired" if change.fired else "cleared",
        "step": change.step,
        "time": change.time,
        "value": change.value if isinstance(change.value, int | float | str | None) else str(change.value),
        "when": change.rule.when,
        "why": change.rule.why,
    }
