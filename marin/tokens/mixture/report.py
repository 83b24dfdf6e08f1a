"""Figures about a mixture: asked and realised shares, epochs, budgets."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from marin.tokens.mixture.artifacts import MixturePhase
from marin.tokens.mixture.order import MixtureOrder, OrderPhase

NOMINAL_SEQUENCES = 100_000


def build_report(
    phases: Sequence[MixturePhase],
    tokens: Mapping[str, int],
    documents: Mapping[str, int],
    *,
    epochs: Mapping[str, float],
    budget_tokens: int | None,
    max_epochs: float | None,
    capped: Sequence[str],
    notes: Sequence[str],
) -> dict[str, Any]:
    """The report as JSON-like data.

    Realised shares, and where in the run (0 to 1) a cell is first and last seen, are those of a run of
    ``NOMINAL_SEQUENCES`` sequences.
    """
    names = sorted(tokens)
    order = MixtureOrder(
        names,
        [1] * len(names),
        [OrderPhase(phase.share, tuple(phase.weights[name] for name in names)) for phase in phases],
        NOMINAL_SEQUENCES,
        seed=0,
    )
    drawn = order.lookup(0, NOMINAL_SEQUENCES).components
    places = [np.flatnonzero(drawn == index) / NOMINAL_SEQUENCES for index in range(len(names))]
    bounds = (0, *order.ends)
    counts = [order.counts(bound) for bound in bounds]
    total = sum(tokens.values())
    return {
        "budget_tokens": budget_tokens,
        "max_epochs": max_epochs,
        "capped": list(capped),
        "notes": list(notes),
        "phases": [{"name": phase.name, "share": phase.share} for phase in phases],
        "nominal_sequences": NOMINAL_SEQUENCES,
        "cells": [
            {
                "name": name,
                "tokens": tokens[name],
                "documents": documents[name],
                "share_of_tokens": tokens[name] / total,
                "epochs": epochs[name],
                "first_seen": float(places[index][0]) if places[index].size else None,
                "last_seen": float(places[index][-1]) if places[index].size else None,
                "asked": [phase.weights[name] for phase in phases],
                "realised": [
                    int(after[index] - before[index]) / max(1, end - begin)
                    for before, after, begin, end in zip(counts, counts[1:], bounds, bounds[1:], strict=False)
                ],
            }
            for index, name in enumerate(names)
        ],
    }


def render_html(report: Mapping[str, Any]) -> str:
    """The report as a page that needs nothing else, with a bar for each cell and phase."""
    phases = [phase["name"] for phase in report["phases"]]
    head = "".join(
        f"<th>{html.escape(name)}</th>" for name in ("cell", "tokens", "documents", "of all", "epochs", "seen", *phases)
    )
    rows = "".join(_row(cell) for cell in report["cells"])
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in report["notes"])
    budget = "one pass of all tokens" if report["budget_tokens"] is None else f"{report['budget_tokens']:,} tokens"
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Mixture</title>"
        "<style>body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem}"
        "table{border-collapse:collapse}td,th{padding:.2rem .7rem;border-bottom:1px solid #ddd;text-align:left}"
        "i{display:inline-block;height:.7em;background:#48a;margin-right:.4em}</style>"
        f"<h1>Mixture</h1><p>Epochs are counted over {budget}. Shares: asked (realised).</p>"
        f"<ul>{notes}</ul><table><tr>{head}</tr>{rows}</table></html>"
    )


def _row(cell: Mapping[str, Any]) -> str:
    bars = "".join(
        f'<td><i style="width:{asked * 120:.1f}px"></i>{asked:.3%} ({realised:.3%})</td>'
        for asked, realised in zip(cell["asked"], cell["realised"], strict=True)
    )
    return (
        f"<tr><td>{html.escape(cell['name'])}</td><td>{cell['tokens']:,}</td><td>{cell['documents']:,}</td>"
        f"<td>{cell['share_of_tokens']:.2%}</td><td>{cell['epochs']:.3f}</td><td>{_seen(cell)}</td>{bars}</tr>"
    )


def _seen(cell: Mapping[str, Any]) -> str:
    return "never" if cell["first_seen"] is None else f"{cell['first_seen']:.2%} to {cell['last_seen']:.2%}"
