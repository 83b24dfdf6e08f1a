"""What a run leaves behind under `_runs/<run>/`: plan, events, logs. Its heartbeat is that of `watch`."""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from typing import Any

from marin.execution import layout
from marin.execution.planning.plan import Action, Plan
from marin.execution.redaction import redact_bytes
from marin.storage import Store

FLUSH_SECONDS = 5.0
logger = logging.getLogger(__name__)


def new_run() -> str:
    """A run's name: start time in UTC and eight random digits, so that listings are in order of time."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"


class RunLog:
    """Events are numbered segments of JSON lines, each created once; a crash loses the last seconds at most.

    Records are the truth, so an event, a log or a traceback that cannot be written is a warning, never a step's end.
    Secrets that this process knows are masked in all of it.
    """

    def __init__(self, store: Store, run: str) -> None:
        self.store = store
        self.folder = layout.run_folder(run)
        self._lock = threading.Lock()
        self._pending: list[str] = []
        self._segment = 0
        self._flushed = time.monotonic()

    def attach(self, name: str, data: bytes) -> None:
        """Keep a file beside the run's plan."""
        self.store.create(f"{self.folder}/{name}", redact_bytes(data))

    def failure(self, key: str, body: dict[str, Any]) -> None:
        """Keep a failure under its key of the store."""
        self._try_to_keep(key, json.dumps(body, indent=1, ensure_ascii=False).encode())

    def plan(self, plan: Plan) -> None:
        """Keep the plan: a line for each step, with its recipe where it has no record that tells it."""
        lines = []
        for step in plan.steps:
            line: dict[str, Any] = {
                "name": step.name,
                "label": step.call.label,
                "identity": step.identity,
                "generation": step.generation,
                "path": step.folder,
                "action": step.action.value,
                "reason": step.reason,
                "upstream": [up.identity for up in step.upstream],
            }
            if step.action is not Action.cached:
                line["recipe"] = step.document
            lines.append(json.dumps(line, ensure_ascii=False))
        targets = json.dumps([step.identity for step in plan.targets])
        steps = ",\n  ".join(lines)
        self.attach("plan.json", f'{{"targets": {targets},\n "steps": [\n  {steps}]}}\n'.encode())

    def event(self, kind: str, **facts: Any) -> None:
        """Add an event; flushed every few seconds."""
        line = json.dumps({"time": round(time.time(), 3), "event": kind, **facts}, ensure_ascii=False)
        with self._lock:
            self._pending.append(line)
        self.flush_when_due()

    def flush_when_due(self) -> None:
        """Write what has been pending for a few seconds. To be called now and then, also while nothing happens."""
        with self._lock:
            if time.monotonic() - self._flushed > FLUSH_SECONDS:
                self._flush()

    def log(self, step_flat: str, attempt: int, text: str) -> None:
        """Keep the log of one attempt."""
        if text:
            self._try_to_keep(f"{self.folder}/logs/{step_flat}-a{attempt}.log", text.encode())

    def flush(self) -> None:
        """Write what is pending."""
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        self._flushed = time.monotonic()
        if self._pending:
            self._segment += 1
            lines = "\n".join(self._pending) + "\n"
            if self._try_to_keep(f"{self.folder}/events-{self._segment:06d}.jsonl", lines.encode()):
                self._pending = []

    def _try_to_keep(self, key: str, data: bytes) -> bool:
        try:
            self.store.create(key, redact_bytes(data))
        except Exception as error:  # clients have errors of their own
            logger.warning("%s could not be written: %s", self.store.url_of(key), error)
            return False
        return True
