"""Ray's exceptions as failures, by class: what was lost is tried again, what the code did is not."""

from __future__ import annotations

import ray.exceptions

from marin.execution.failures import FailureClass
from marin.execution.redaction import redact
from marin.execution.running.worker import Failure, failure_of

OUT_OF_MEMORY = (ray.exceptions.OutOfMemoryError, ray.exceptions.ObjectStoreFullError)
LOST_WORKER = "WorkerLost"
"""The error of a process that went away."""
LOST = (
    ray.exceptions.WorkerCrashedError,
    ray.exceptions.ActorDiedError,
    ray.exceptions.ActorUnavailableError,
    ray.exceptions.NodeDiedError,
    ray.exceptions.OwnerDiedError,
    ray.exceptions.ObjectLostError,
    ray.exceptions.LocalRayletDiedError,
    ray.exceptions.RaySystemError,
)


def ray_failure(error: BaseException, what: str) -> Failure:
    """The failure of `what`, of which Ray raised this."""
    text = redact(str(error)).strip()
    if isinstance(error, ray.exceptions.RayTaskError) and isinstance(error, ray.exceptions.RaySystemError):
        message = f"the worker of {what} cannot read its task, as it lacks what this process has: {last_line(text)}"
        return Failure(FailureClass.error, "TaskUnreadable", message, text, "")
    if isinstance(error, ray.exceptions.TaskCancelledError):
        return Failure(FailureClass.cancelled, "Cancelled", f"{what} was cancelled", "", "")
    if isinstance(error, OUT_OF_MEMORY):
        return Failure(FailureClass.memory, "OutOfMemory", f"{what} was killed for memory: {text}", text, "")
    if isinstance(error, LOST):
        message = f"the worker of {what} is gone: {text.partition(chr(10))[0]}"
        return Failure(FailureClass.preempted, LOST_WORKER, message, text, "")
    return failure_of(error)


def last_line(text: str) -> str:
    """The last line of a text, where tracebacks say what happened."""
    return text.rpartition("\n")[2]
