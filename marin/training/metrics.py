"""The metrics log: one JSON line a step, durable in segments, without gaps or doubles across restarts.

A segment is closed before each checkpoint, and the checkpoint lists exactly the segments that hold the lines of the
steps before it. So lines after the restored step belong to no one, whichever attempt left them, and a listing is
never the truth.
"""

from __future__ import annotations

import contextlib
import json
import math
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from marin.checkpoint.errors import CheckpointError
from marin.checkpoint.progress import MetricsSegment
from marin.checkpoint.state_folder import ObjectStore, StateFolder

FOLDER = "metrics"


class MetricsLog:
    """Lines of the current segment in memory, closed ones in the resumable state. Only rank 0 has one."""

    def __init__(self, state: StateFolder, segments: Iterable[MetricsSegment] = (), first: int = 1) -> None:
        """`first` is the step of the first line of all."""
        self._state = state
        self._first = first
        self._segments = list(segments)
        self._lines: list[str] = []
        self._cut: list[tuple[str, list[str]]] = []
        self._listeners: list[Callable[[dict[str, Any]], None]] = []

    def listen(self, listener: Callable[[dict[str, Any]], None]) -> None:
        """Has `listener` called with every further line, as it will be read, in the thread that appends it."""
        self._listeners.append(listener)

    def last_lines(self, count: int) -> list[dict[str, Any]]:
        """The lines of the fewest last segments that hold `count` of them, or all there are."""
        read: list[dict[str, Any]] = []
        for segment in reversed(self._segments):
            if len(read) >= count:
                break
            read = [json.loads(text) for text in self._state.store.read(segment.key).decode().splitlines()] + read
        return read

    @property
    def next_step(self) -> int:
        """The step whose line comes next."""
        return (self._segments[-1].last + 1 if self._segments else self._first) + len(self._lines)

    def append(self, step: int, figures: Mapping[str, Any]) -> None:
        """Adds the line of `step`; steps come in order, each once. A figure that is not finite is written as null."""
        if step != self.next_step:
            raise ValueError(f"metrics of step {step} come after those of step {self.next_step - 1}")
        line = {"step": step, **{name: _finite(value) for name, value in figures.items()}}
        self._lines.append(json.dumps(line, allow_nan=False))
        for listener in self._listeners:
            listener(line)

    def cut(self) -> tuple[MetricsSegment, ...]:
        """Ends the segment of the lines so far, and returns every segment of the run, oldest first. The ended ones are
        in memory until `flush`.
        """
        if self._lines:
            last = self.next_step - 1
            first = last - len(self._lines) + 1
            name = f"{FOLDER}/{first:08d}-{last:08d}-{uuid.uuid4().hex[:6]}.jsonl"
            segment = MetricsSegment(first=first, last=last, key=self._state.key(name), size=len(_joined(self._lines)))
            self._segments.append(segment)
            self._cut.append((name, self._lines))
            self._lines = []
        return tuple(self._segments)

    def flush(self) -> None:
        """Makes every ended segment durable. May be called from one other thread; what fails is written next time."""
        while self._cut:
            name, lines = self._cut[0]
            with contextlib.suppress(FileExistsError):  # the reply to an earlier attempt was lost: the name is unique
                self._state.create(name, _joined(lines))
            del self._cut[0]


def read_segments(store: ObjectStore, segments: Iterable[MetricsSegment], first: int = 1) -> Iterator[dict[str, Any]]:
    """Every line of the segments in order, from step `first` on; raises CheckpointError when a segment is damaged or a
    step is missing or doubled.
    """
    expected = first
    for segment in segments:
        data = store.read(segment.key)
        if len(data) != segment.size:
            raise CheckpointError(
                f"the metrics segment {segment.key} has {len(data)} bytes, its checkpoint says {segment.size}: "
                "it was damaged"
            )
        for text in data.decode().splitlines():
            line: dict[str, Any] = json.loads(text)
            if line["step"] != expected:
                raise CheckpointError(
                    f"the metrics segment {segment.key} has step {line['step']} where {expected} comes next"
                )
            yield line
            expected += 1


def _joined(lines: list[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def _finite(value: Any) -> Any:
    """The value with every float that is not finite replaced by None, which strict JSON readers take."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
