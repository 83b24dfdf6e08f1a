"""Event files for TensorBoard, written from the metrics log.

TensorBoard's own record writer is used directly, without a summary writer's threads or torch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from marin.checkpoint.state_folder import ByteSink


def write_events(
    sink: ByteSink, lines: Iterable[Mapping[str, Any]], validations: Iterable[Mapping[str, Any]] = ()
) -> int:
    """Writes the scalars of every metrics line, then those of every validation, as events; returns how many there
    are.

    The wall time of an event is the line's `time`; nested objects and lists become tags with slashes; other values
    are left out.
    """
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    writer = RecordWriter(_Sink(sink))
    count = 0
    writer.write(Event(wall_time=0.0, file_version="brain.Event:2").SerializeToString())
    tagged = itertools.chain(((line, "") for line in lines), ((line, "validation/") for line in validations))
    for line, prefix in tagged:
        step = int(line["step"])
        values = [Summary.Value(tag=prefix + tag, simple_value=value) for tag, value in scalars(line)]
        writer.write(
            Event(wall_time=float(line.get("time", 0.0)), step=step, summary=Summary(value=values)).SerializeToString()
        )
        count += len(values)
    return count


def scalars(line: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Tag and value of each number of a metrics line, in order."""
    for name, value in line.items():
        tag = f"{prefix}{name}"
        if tag in ("step", "time") or isinstance(value, bool):
            continue
        if isinstance(value, int | float):
            yield tag, float(value)
        elif isinstance(value, Mapping):
            yield from scalars(value, f"{tag}/")
        elif isinstance(value, list | tuple):
            yield from scalars({str(index): item for index, item in enumerate(value)}, f"{tag}/")


class _Sink:
    """What RecordWriter asks of a file."""

    def __init__(self, sink: ByteSink) -> None:
        self._sink = sink

    def write(self, data: bytes) -> None:
        self._sink.write(data)

    def flush(self) -> None: ...

    def close(self) -> None: ...
