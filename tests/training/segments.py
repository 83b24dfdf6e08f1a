"""Segments of metrics."""

from __future__ import annotations

from marin.checkpoint.progress import MetricsSegment
from marin.training.metrics import MetricsLog


def closed(log: MetricsLog) -> tuple[MetricsSegment, ...]:
    """Every segment of a log, after all lines so far were made durable."""
    segments = log.cut()
    log.flush()
    return segments
