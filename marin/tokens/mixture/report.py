"""Figures about a mixture: asked and realised shares, epochs, budgets."""

from __future__ import annotations

import html
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from marin.tokens.mixture.artifacts import MixturePhase
from marin.tokens.mixture.curve import OrderPhase
from marin.tokens.mixture.draws import Component
from marin.tokens.mixture.order import MixtureOrder

NOMINAL_SEQUENCES = 100_000
WINDOW = 10_000
FIGURE_POINTS = 100


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

    Realised shares, the places (0 to 1) where a cell is first and last seen, how far any window of ``WINDOW`` sequences
    is off what was asked, and the ``course`` of shares over equal parts of the run, are those of a run of
    ``NOMINAL_SEQUENCES`` sequences.
    """
    names = sorted(tokens)
    order = MixtureOrder([Component(name, 1) for name in names], order_phases(phases, names), NOMINAL_SEQUENCES, seed=0)
    drawn = order.lookup(0, NOMINAL_SEQUENCES).components
    bounds = (0, *order.ends)
    total = sum(tokens.values())
    cells = [
        _realised(order, index, drawn, bounds)
        | {
            "name": name,
            "tokens": tokens[name],
            "documents": documents[name],
            "share_of_tokens": tokens[name] / total,
            "epochs": epochs[name],
            "role": "training" if any(phase.weights[name] > 0 for phase in phases) else "validation",
            "asked": [phase.weights[name] for phase in phases],
        }
        for index, name in enumerate(names)
    ]
    return {
        "budget_tokens": budget_tokens,
        "max_epochs": max_epochs,
        "capped": list(capped),
        "notes": list(notes),
        "phases": [{"name": phase.name, "share": phase.share, "ramp": phase.ramp} for phase in phases],
        "nominal_sequences": NOMINAL_SEQUENCES,
        "window": WINDOW,
        "largest_window_error": max(cell["window_error"] for cell in cells),
        "cells": cells,
    }


def order_phases(phases: Sequence[MixturePhase], names: Sequence[str]) -> list[OrderPhase]:
    """The phases with their shares in the order of ``names``."""
    return [OrderPhase(phase.share, tuple(phase.weights[name] for name in names), phase.ramp) for phase in phases]


def _realised(order: MixtureOrder, index: int, drawn: npt.NDArray[np.int16], bounds: Sequence[int]) -> dict[str, Any]:
    """What a nominal run draws of one cell, and when."""
    mine = drawn == index
    places = np.flatnonzero(mine) / len(mine)
    before = np.concatenate([[0], np.cumsum(mine)])
    asked = order.curve.before(np.arange(len(before)), np.full(len(before), index))
    error = before - asked
    steps = np.linspace(0, len(mine), FIGURE_POINTS + 1).astype(np.int64)
    return {
        "first_seen": float(places[0]) if places.size else None,
        "last_seen": float(places[-1]) if places.size else None,
        "realised": [
            int(before[end] - before[begin]) / max(1, end - begin) for begin, end in itertools.pairwise(bounds)
        ],
        "window_error": float(np.abs(error[WINDOW:] - error[:-WINDOW]).max()),
        "course": (np.diff(before[steps]) / np.diff(steps)).round(6).tolist(),
    }


def render_html(report: Mapping[str, Any], figure: str) -> str:
    """The report as a page that needs nothing else: the figure of shares, and a bar for each cell and phase."""
    phases = [phase["name"] + (f" (ramp {phase['ramp']:.1%})" if phase["ramp"] else "") for phase in report["phases"]]
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
        f"<h1>Mixture</h1><p>Epochs are counted over {budget}. Shares: asked (realised); no window of "
        f"{report['window']:,} sequences is off by more than {report['largest_window_error']:.2f} sequences.</p>"
        f"{figure}<ul>{notes}</ul><table><tr>{head}</tr>{rows}</table></html>"
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
    if cell["first_seen"] is None:
        return "never (validation)" if cell["role"] == "validation" else "never"
    return f"{cell['first_seen']:.2%} to {cell['last_seen']:.2%}"
