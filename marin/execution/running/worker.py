"""What happens in the process that runs a step: set the stage, call the body, bring back an outcome.

Whatever goes wrong comes back as text in the outcome, never as an exception object: exceptions of foreign libraries
often cannot be unpickled, and then hide the real error.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from marin.execution.artifact import Artifact, FileInfo
from marin.execution.codec import encode
from marin.execution.failures import Cancelled, FailureClass, LeaseLost, Preempted, Stalled, StepError
from marin.execution.fields import External, found_in
from marin.execution.fitting import misfit_of_result
from marin.execution.records import Flow
from marin.execution.redaction import redact, refuse_exposed
from marin.execution.running.captured_log import captured_log
from marin.execution.running.context import Fanout, Run, entered
from marin.execution.running.external import FirstUse, Sight, changes_since, see
from marin.execution.running.scratch import scratch_folder
from marin.execution.running.tasks import Report, RunSpec
from marin.execution.running.unanswered import gave_no_answer
from marin.execution.secrets import available
from marin.storage import StoreUnavailable

TEXT_LIMIT = 20_000
CAUSE_LIMIT = 500


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
    """Why there is no result. `expected` failures carry a message for people; the others their traceback.

    `causes` are the exceptions behind it, `Class: message`, nearest first. Secrets that this process knows are masked.
    """

    kind: FailureClass
    error: str
    message: str
    trace: str
    node: str
    expected: bool = False
    causes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("message", "trace"):
            object.__setattr__(self, name, redact(getattr(self, name)))


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
    remarks: tuple[str, ...] = ()


def classify(error: BaseException) -> FailureClass:
    """The class of an exception in a step's own process."""
    if isinstance(error, StepFailed):
        return error.failure.kind
    if isinstance(error, LeaseLost):
        return FailureClass.lease
    if isinstance(error, (Cancelled, KeyboardInterrupt)):
        return FailureClass.cancelled
    if isinstance(error, MemoryError) or _says_out_of_memory(error):
        return FailureClass.memory
    if isinstance(error, Stalled):
        return FailureClass.stalled
    if isinstance(error, Preempted) or gave_no_answer(error):
        return FailureClass.preempted
    return FailureClass.error


def _says_out_of_memory(error: BaseException) -> bool:
    """Errors of torch and of the system that are no `MemoryError`."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    named = type(error).__module__.startswith("torch") and type(error).__name__ == "OutOfMemoryError"
    return named or (isinstance(error, RuntimeError) and "DefaultCPUAllocator: can't allocate memory" in str(error))


def failure_of(error: BaseException) -> Failure:
    """An exception as text."""
    if isinstance(error, StepFailed):
        return error.failure
    trace = redact("".join(traceback.format_exception(error)))  # before it is cut: half a secret is not recognised
    return Failure(
        kind=classify(error),
        error=type(error).__qualname__,
        message=redact(str(error))[:TEXT_LIMIT],
        trace=trace if len(trace) <= TEXT_LIMIT else f"{trace[: TEXT_LIMIT // 2]}\n…\n{trace[-TEXT_LIMIT // 2 :]}",
        node=f"{socket.gethostname()} pid {os.getpid()}",
        expected=isinstance(error, StepError),
        causes=tuple(f"{type(one).__qualname__}: {redact(str(one))[:CAUSE_LIMIT]}" for one in _causes(error)),
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The exceptions that led to this one: those it was raised from, or while handling which it came up."""
    seen = {id(error)}
    while True:
        above = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if above is None or id(above) in seen:
            return
        seen.add(id(above))
        yield above
        error = above


def execute(task: StepTask, report: Report, fanout: Fanout) -> Outcome:
    """Run a step's body in this process."""
    spec = task.spec
    with captured_log() as log, scratch_folder() as scratch:
        run = Run(spec, spec.attempt_folder, report, fanout, scratch)
        try:
            with available(spec.secrets):
                result = _carried_out(task, run)
        except BaseException as error:
            failure = failure_of(error)
            logging.getLogger(__name__).error("%s failed: %s", spec.display, failure.trace)
            return Outcome(None, (), (), failure, log.getvalue())
        files, flows = tuple(run.files.values()), tuple(run.flows)
        return Outcome(result, files, flows, None, log.getvalue(), tuple(run.remarks))


def _carried_out(task: StepTask, run: Run) -> Any:
    """The result of the body, as JSON, between two looks at the external inputs that it reads."""
    spec = task.spec
    first_use = FirstUse(spec.store, {"step": spec.display, "run": spec.run})
    sights = [see(place, external) for place, external in found_in(task.arguments, External)]
    fresh = [sight for sight in sights if not first_use.compare(sight)]
    try:
        with entered(run):
            artifact = task.function(**task.arguments)
    except Exception as error:
        if classify(error) is FailureClass.error and (changes := _changes_behind(sights)):
            raise StepError(changes) from error
        raise
    result = _checked_result(task, artifact)
    refuse_exposed([result, list(run.files), run.flows, run.remarks], f"the record of {spec.display}")
    for sight in sights:
        if changes := changes_since(sight):
            raise StepError(changes)
    for sight in fresh:
        first_use.remember(sight)
    return result


def _changes_behind(sights: list[Sight]) -> str:
    """What changed while a body ran that failed, or an empty text: it may be why."""
    for sight in sights:
        try:
            changes = changes_since(sight)
        except StepError as gone:
            return str(gone)
        except StoreUnavailable:
            continue
        if changes:
            return changes
    return ""


def _checked_result(task: StepTask, artifact: Any) -> Any:
    if not isinstance(artifact, task.result_type):
        declared = task.result_type.__name__
        raise StepError(
            f"{task.spec.display} returned a {type(artifact).__name__}; it is declared to return {declared}"
        )
    result = encode(artifact, home=task.spec.store.url)
    misfit = misfit_of_result(result, task.result_type)
    if misfit is not None:
        raise StepError(f"{task.spec.display} returned a {task.result_type.__name__} that is none: {misfit}")
    return result
