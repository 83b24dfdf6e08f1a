"""A real `Run` on a store, without a runner: holds the resumable state in the tests of checkpoints and training."""

from __future__ import annotations

from marin.execution.fleet import Fleet
from marin.execution.running.claims import Claim
from marin.execution.running.context import Run
from marin.execution.running.scratch import Scratch
from marin.execution.running.tasks import RunSpec
from marin.storage import Store, open_store

NAME, IDENTITY = "model/pretrain", "0" * 64


def holder(store: Store | str, *, epoch: int = 1, workers: int = 1) -> Run:
    """The run of the claim epoch `epoch`."""
    spec = RunSpec(
        store=open_store(store) if isinstance(store, str) else store,
        run="test-run",
        name=NAME,
        display=NAME,
        step_folder=f"{NAME}/test",
        attempt=1,
        claim=Claim(NAME, IDENTITY, epoch),
        fleet=Fleet(workers=workers),
        code_digest="",
        fans_out=True,
    )
    return Run(spec, spec.attempt_folder, lambda progress: None, None, Scratch())
