"""The evaluation as one HTML page that needs nothing beside it."""

from __future__ import annotations

from marin.data.documents.pages import template
from marin.evaluation import report as console
from marin.evaluation.artifacts import EvalReport


def page(report: EvalReport) -> str:
    """HTML of a report. All text of documents and of the model is escaped."""
    return template("marin.evaluation", "report.html").render(
        report=report,
        rows=console.task_rows(report),
        notes=console.notes(report.requests),
        gain=console.gain(report),
        figure=console.figure,
        found_items=console.found_items,
        metric_name=console.metric_name,
    )
