"""All state of a run that is not a tensor, as one readable JSON file of a checkpoint."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from marin.checkpoint.errors import CheckpointError


@dataclass(frozen=True, kw_only=True)
class MetricsSegment:
    """A closed piece of the metrics log: the lines of steps `first`..`last`, both included, and where they lie in the
    store.
    """

    first: int
    last: int
    key: str
    size: int


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a run stands after `step` steps.

    The schedule is a function of `step`, and the data position is `next_sequence` alone: the global number of the
    first sequence that no step has read. Neither depends on the number of ranks.
    """

    step: int
    next_sequence: int
    tokens: int
    """Real tokens (those with a loss) that were trained on."""
    updates: int
    """Optimizer updates made; `step - updates` steps were skipped for a non-finite loss or gradient."""
    skipped_in_a_row: int
    metrics: tuple[MetricsSegment, ...]
    """The metrics cursor: exactly the segments that hold the lines of steps 1..step."""
    validations: tuple[dict[str, Any], ...]
    """Results of the validations so far, oldest first."""
    random_states: tuple[dict[str, str], ...]
    """One entry a rank: generator name to its state in base64."""
    identity: dict[str, Any]
    """What the checkpoint belongs to: model, mixture, batch; see `marin.checkpoint.identity`."""
    parts: dict[str, dict[str, Any]]
    """State of the run's stateful parts beside the model by name (hooks, guards), equal on every rank."""

    def to_bytes(self) -> bytes:
        """The progress as a JSON object."""
        return json.dumps(dataclasses.asdict(self), indent=1, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Progress:
        """Inverse of `to_bytes`; unknown or missing fields are an error that names them."""
        parsed: dict[str, Any] = json.loads(data)
        own = {field.name for field in dataclasses.fields(cls)}
        if own != set(parsed):
            missing, unknown = sorted(own - set(parsed)), sorted(set(parsed) - own)
            raise CheckpointError(
                f"the checkpoint's progress lacks the fields {missing} and has the unknown fields {unknown}"
            )
        parsed["metrics"] = tuple(MetricsSegment(**segment) for segment in parsed["metrics"])
        parsed["validations"] = tuple(parsed["validations"])
        parsed["random_states"] = tuple(parsed["random_states"])
        return cls(**parsed)
