"""What goes to a worker, and what it comes back with: the attempt it works for, shards and ranks."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from marin.execution import layout
from marin.execution.artifact import FileInfo
from marin.execution.fleet import Fleet
from marin.execution.records import Flow
from marin.execution.running.claims import Claim
from marin.execution.secrets import SecretValues
from marin.storage import Store

Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class RunSpec:
    """All that a worker needs to know of the attempt it works for. Pickles."""

    store: Store
    run: str
    name: str
    display: str
    step_folder: str
    attempt: int
    claim: Claim
    fleet: Fleet
    code_digest: str
    fans_out: bool
    secrets: SecretValues = field(default_factory=SecretValues)

    @property
    def attempt_folder(self) -> str:
        """Where this attempt's own files go: no other attempt, of this run or another, has the same."""
        return layout.attempt_folder(self.step_folder, self.attempt, self.run)

    @property
    def state_folder(self) -> str:
        """Where the state of all epochs lies."""
        return f"{self.claim.folder or self.step_folder}/state"


@dataclass(frozen=True)
class ShardTask:
    """One item of a `run.map`: its place, its key in the state, and what is to be called."""

    index: int
    key: str
    function: Callable[[Any], Any]
    item: Any
    memory_gb: float | None


@dataclass(frozen=True)
class ShardOutcome:
    """A finished shard: the JSON result, and what it wrote."""

    result: Any
    files: tuple[FileInfo, ...]
    flows: tuple[Flow, ...]

    def to_json(self) -> bytes:
        """As it lies in the state."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def from_json(data: bytes) -> ShardOutcome:
        """The outcome of a shard's manifest."""
        body = json.loads(data)
        return ShardOutcome(
            body["result"],
            tuple(FileInfo(**file) for file in body["files"]),
            tuple(Flow(**flow) for flow in body["flows"]),
        )


@dataclass(frozen=True)
class RankOutcome:
    """What one rank of a gang came back with."""

    result: Any
    files: tuple[FileInfo, ...]
    flows: tuple[Flow, ...]
