"""All state of a run that is not a tensor, as one readable JSON file of a checkpoint."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from marin.checkpoint.errors import CheckpointError, IdentityMismatch


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
    """What the checkpoint belongs to: model, mixture, batch; see `check_identity`."""
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


def as_json(value: Any) -> Any:
    """Plain JSON data of a config: dataclasses become objects, enums their names, tuples lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"{value!r} of {type(value)} has no JSON form")


def check_identity(stored: Mapping[str, Any], own: Mapping[str, Any], where: str) -> None:
    """Raises IdentityMismatch with one line for each differing field unless the two identities are equal."""
    lines = differences(stored, own)
    if lines:
        listed = "\n  ".join(lines)
        raise IdentityMismatch(
            f"the {where} belongs to another run:\n  {listed}\n"
            "Start under another step identity, or remove the checkpoint."
        )


def differences(stored: Mapping[str, Any], own: Mapping[str, Any]) -> list[str]:
    """One readable line for each leaf that differs, by its dotted path."""
    left, right = _leaves(stored, ""), _leaves(own, "")
    lines = []
    for path in sorted(left.keys() | right.keys()):
        if path not in right:
            lines.append(f"{path}: the checkpoint has {left[path]!r}, this run has no such field")
        elif path not in left:
            lines.append(f"{path}: the checkpoint has no such field, this run has {right[path]!r}")
        elif left[path] != right[path]:
            lines.append(f"{path}: the checkpoint has {left[path]!r}, this run {right[path]!r}")
    return lines


def _leaves(value: Any, path: str) -> dict[str, Any]:
    if isinstance(value, Mapping) and value:
        joined: dict[str, Any] = {}
        for key, item in value.items():
            joined |= _leaves(item, f"{path}.{key}" if path else str(key))
        return joined
    return {path: value}
