"""A comparison of tokenizers as one HTML page that needs nothing beside it."""

from __future__ import annotations

from importlib.resources import files

import jinja2

from marin.evaluation import comparison_tables as tables
from marin.evaluation.comparison import Comparison


def page(comparison: Comparison) -> str:
    """HTML of a comparison; names are escaped."""
    source = files("marin.evaluation").joinpath("comparison.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(source).render(
        comparison=comparison,
        trained=tables.trained_rows(comparison),
        headings=tables.score_headings(comparison),
        scores=tables.score_rows(comparison),
    )
