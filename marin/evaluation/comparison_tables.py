"""A comparison of tokenizers as tables on a console. Reads only the comparison itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from marin.evaluation.comparison import Comparison, Contest, Score


def mean(score: Score) -> str:
    """The mean, with the deviation over seeds where there are several."""
    return f"{score.mean:.4f}" + ("" if score.deviation is None else f" ± {score.deviation:.4f}")


def difference(score: Score) -> str:
    """The difference from the baseline, in bits per byte and of the baseline, with its standard error if known."""
    error = "" if score.difference_error is None else f" ± {score.difference_error:.4f}"
    return f"{score.difference:+.4f}{error} ({score.difference / (score.mean - score.difference):+.2%})"


def trained_rows(comparison: Comparison) -> list[tuple[str, list[str]]]:
    """What was trained: the name of a figure, and its value for each tokenizer."""
    figures: tuple[tuple[str, Callable[[Contest], str]], ...] = (
        ("vocabulary of the model", lambda one: f"{one.vocab_size:,}"),
        ("entries of the tokenizer", lambda one: f"{one.real_vocab_size:,}"),
        ("parameters, embedding and output", lambda one: f"{one.embedding_parameters:,}"),
        ("parameters, all others", lambda one: f"{one.other_parameters:,}"),
        ("FLOPs per token", lambda one: f"{one.flops_per_token:,}"),
        ("steps", lambda one: f"{one.steps:,}"),
        ("FLOPs of a run", lambda one: f"{one.flops:.4e}"),
        ("from the budget", lambda one: f"{one.flops / comparison.flops - 1:+.2%}"),
        ("training tokens", lambda one: f"{one.tokens:,}"),
        ("training bytes (about)", lambda one: f"{one.text_bytes:,}"),
        ("seeds", lambda one: f"{one.seeds}"),
    )
    return [(name, [figure(one) for one in comparison.contests]) for name, figure in figures]


def score_rows(comparison: Comparison) -> list[tuple[str, list[str]]]:
    """Bits per byte by source, then the difference of every other tokenizer, then bytes per token, as columns."""
    rows = []
    for source in comparison.sources:
        cells = [f"{source.bytes:,}", *(mean(score) for score in source.scores)]
        cells += [difference(score) for score in source.scores[1:]]
        cells += [f"{score.bytes_per_token:.3f}" for score in source.scores]
        rows.append((source.source, cells))
    return rows


def score_headings(comparison: Comparison) -> list[str]:
    """Headings of the columns of `score_rows`."""
    names = [one.name for one in comparison.contests]
    return [
        "bytes",
        *(f"bits per byte, {name}" for name in names),
        *(f"{name} − {names[0]}" for name in names[1:]),
        *(f"bytes a token, {name}" for name in names),
    ]


def render(comparison: Comparison, places: Mapping[str, str]) -> RenderableType:
    """Tables for the console, the verdicts, and where everything lies."""
    trained = Table(title=f"Trained with {comparison.flops:.3e} FLOPs each", title_justify="left")
    trained.add_column("")
    for one in comparison.contests:
        trained.add_column(Text(one.name), justify="right")
    for name, cells in trained_rows(comparison):
        trained.add_row(name, *cells)
    scores = Table(title="Held-out text", title_justify="left")
    scores.add_column("source")
    for heading in score_headings(comparison):
        scores.add_column(Text(heading), justify="right")
    *sources, everything = score_rows(comparison)
    for name, cells in sources:
        scores.add_row(Text(name), *cells)
    scores.add_section()
    scores.add_row(everything[0], *everything[1], style="bold")
    verdicts = [Text(verdict, style="bold") for verdict in comparison.verdicts]
    return Group(trained, scores, *verdicts, *(Text(f"{name}: {place}") for name, place in places.items()))
