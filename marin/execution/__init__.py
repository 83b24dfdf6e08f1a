"""Steps, identity, plan, records, claims and the runner: a graph of content-hashed steps over an object store.

This room knows no machine learning. What a graph is made of lies here; on it stand `planning`, `running`, `reasons`,
and beside each other `cluster`, the only room that imports Ray (when something has to run), and `upkeep`.
"""

from marin.execution.adopted import adopted
from marin.execution.artifact import Artifact, FileInfo, Unmaterialised
from marin.execution.failures import FailureClass, LeaseLost, Preempted, Stalled, StepError
from marin.execution.fields import External, added, derive_seed, runtime
from marin.execution.fleet import Fleet
from marin.execution.identity import UnstableValue
from marin.execution.planning.plan import Action, Plan, PlannedStep, WrongPattern, make_plan
from marin.execution.records import Flow, Record
from marin.execution.running.context import Run, StateFile, current_run
from marin.execution.running.in_process import materialise
from marin.execution.running.intermediates import Intermediate
from marin.execution.running.progress import RunResult, Status
from marin.execution.running.runner import Runner, RunOptions
from marin.execution.running.stopping import StopRequest
from marin.execution.secrets import Secret
from marin.execution.step import step

__all__ = [
    "Action",
    "Artifact",
    "External",
    "FailureClass",
    "FileInfo",
    "Fleet",
    "Flow",
    "Intermediate",
    "LeaseLost",
    "Plan",
    "PlannedStep",
    "Preempted",
    "Record",
    "Run",
    "RunOptions",
    "RunResult",
    "Runner",
    "Secret",
    "Stalled",
    "StateFile",
    "Status",
    "StepError",
    "StopRequest",
    "Unmaterialised",
    "UnstableValue",
    "WrongPattern",
    "added",
    "adopted",
    "current_run",
    "derive_seed",
    "make_plan",
    "materialise",
    "runtime",
    "step",
]
