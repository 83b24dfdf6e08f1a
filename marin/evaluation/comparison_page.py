"""A comparison of tokenizers as one HTML page that needs nothing beside it."""

from __future__ import annotations

from marin.data.documents.pages import template
from marin.evaluation import comparison_tables as tables
from marin.evaluation.comparison import Comparison


def page(comparison: Comparison) -> str:
    """HTML of a comparison; names are escaped."""
    return template("marin.evaluation", "comparison.html").render(
        comparison=comparison,
        trained=tables.trained_rows(comparison),
        headings=tables.score_headings(comparison),
        scores=tables.score_rows(comparison),
    )
