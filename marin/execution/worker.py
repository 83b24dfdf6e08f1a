"""What happens in the process that runs a step: set the stage, call the body, bring back an outcome.

Whatever goes wrong comes back as text in the outcome, never as an exception object: exceptions of foreign libraries
often cannot be unpickled, and then hide the real error.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import socket
import tempfile
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marin.execution.artifact import Artifact, FileInfo
from marin.execution.codec import encode
from marin.execution.context import Fanout, Report, Run, RunSpec, entered
from marin.execution.failures import Cancelled, FailureClass, LeaseLost, StepError
from marin.execution.records import Flow

LOG_LIMIT = 4 << 20
TEXT_LIMIT = 20_000


@dataclass(frozen=True)
class StepTask:
    """A step call that is ready to run: its arguments are materialised."""

    spec: RunSpec
    function: Callable[..., Any]
    arguments: dict[str, Any]
    result_type: type[Artifact]
    cpus: float
    memory_gb: float | None


@dataclass(frozen=True)
class Failure:
    """Why there is no result. `expected` failures carry a message for people; the others their traceback."""

    kind: FailureClass
    error: str
    message: str
    trace: str
    node: str
    expected: bool = False


class StepFailed(Exception):
    """A part of a step (a shard, a rank) failed; carries the failure as text across processes."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure

    def __reduce__(self) -> tuple[Any, ...]:
        return (StepFailed, (self.failure,))

    def __str__(self) -> str:
        return f"{self.failure.error}: {self.failure.message}"


@dataclass(frozen=True)
class Outcome:
    """What a step's process brings back."""

    result: Any
    files: tuple[FileInfo, ...]
    flows: tuple[Flow, ...]
    failure: Failure | None
    log: str


def classify(error: BaseException) -> FailureClass:
    """The class of an exception in a step's own process."""
    if isinstance(error, StepFailed):
        return error.failure.kind
    if isinstance(error, LeaseLost):
        return FailureClass.lease
    if isinstance(error, (Cancelled, KeyboardInterrupt)):
        return FailureClass.cancelled
    if isinstance(error, MemoryError):
        return FailureClass.memory
    return FailureClass.error


def failure_of(error: BaseException) -> Failure:
    """An exception as text."""
    if isinstance(error, StepFailed):
        return error.failure
    trace = "".join(traceback.format_exception(error))
    return Failure(
        kind=classify(error),
        error=type(error).__qualname__,
        message=str(error)[:TEXT_LIMIT],
        trace=trace if len(trace) <= TEXT_LIMIT else f"{trace[: TEXT_LIMIT // 2]}\n…\n{trace[-TEXT_LIMIT // 2 :]}",
        node=f"{socket.gethostname()} pid {os.getpid()}",
        expected=isinstance(error, StepError),
    )


@contextlib.contextmanager
def captured_log() -> Iterator[io.StringIO]:
    """Log records of this process while the block lasts, as text, up to a limit."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    handler.addFilter(lambda record: stream.tell() < LOG_LIMIT)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    if level > logging.INFO or level == logging.NOTSET:
        root.setLevel(logging.INFO)
    try:
        yield stream
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder of this machine."""
    with tempfile.TemporaryDirectory(prefix="marin-") as folder:
        yield Path(folder)


def execute(task: StepTask, report: Report, fanout: Fanout) -> Outcome:
    """Run a step's body in this process."""
    spec = task.spec
    with captured_log() as log, scratch_folder() as scratch:
        run = Run(spec, spec.attempt_folder, report, fanout, scratch)
        try:
            with entered(run):
                artifact = task.function(**task.arguments)
            result = _checked_result(task, artifact)
        except BaseException as error:
            failure = failure_of(error)
            logging.getLogger(__name__).error("%s failed: %s", spec.display, failure.trace)
            return Outcome(None, (), (), failure, log.getvalue())
        return Outcome(result, tuple(run.files.values()), tuple(run.flows), None, log.getvalue())


def _checked_result(task: StepTask, artifact: Any) -> Any:
    if not isinstance(artifact, task.result_type):
        declared = task.result_type.__name__
        raise StepError(
            f"{task.spec.display} returned a {type(artifact).__name__}; it is declared to return {declared}"
        )
    return encode(artifact)
