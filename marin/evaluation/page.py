"""The evaluation as one HTML page that needs nothing beside it."""

from __future__ import annotations

from importlib.resources import files

import jinja2

from marin.evaluation import report as console
from marin.evaluation.artifacts import EvalReport


def page(report: EvalReport) -> str:
    """HTML of a report. All text of documents and of the model is escaped."""
    source = files("marin.evaluation").joinpath("report.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(source).render(
        report=report,
        rows=console.task_rows(report),
        notes=console.notes(report.requests),
        gain=console.gain(report),
        figure=console.figure,
        found_items=console.found_items,
        metric_name=console.metric_name,
    )
