"""Curves of runs joined by step: the figures, the JSON and the picture. Imports nothing heavy."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from statistics import fmean, median
from typing import Any

from marin.checkpoint.artifacts import Checkpoint
from marin.execution import Run, StepError
from marin.training.fork import COMPARISON, CURVES, ForkComparison, ForkSummary
from marin.training.outputs import METRICS

Lines = dict[int, dict[str, Any]]
"""Metrics lines by step."""

WIDTH, HEIGHT, LEFT, GAP = 800, 240, 72, 40
COLOURS = ("#333333", "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf")


def compared(run: Run, control: Checkpoint, forks: Mapping[str, Checkpoint]) -> ForkComparison:
    """The body of `compare_forks`."""
    if not forks:
        raise StepError("there is no fork to compare")
    own = metrics_of(control)
    others = {name: metrics_of(fork) for name, fork in sorted(forks.items())}
    steps = sorted(own.keys() & set.intersection(*(set(lines) for lines in others.values())))
    if not steps:
        ranges = {"the control": own, **others}
        told = ", ".join(f"{name} has {min(lines)} to {max(lines)}" for name, lines in ranges.items() if lines)
        raise StepError(f"the runs have no step in common: {told}")
    losses = {name: [_loss(lines[step]) for step in steps] for name, lines in {"control": own, **others}.items()}
    differences = {name: _differences(losses[name], losses["control"]) for name in others}
    summaries = {
        name: summary([own[step] for step in steps], [lines[step] for step in steps]) for name, lines in others.items()
    }
    run.write_json(
        COMPARISON,
        {
            "unit": "nats per token",
            "steps": steps,
            "control": losses["control"],
            "forks": {name: {"loss": losses[name], "difference": differences[name]} for name in others},
            "summaries": {name: _strict(vars(one)) for name, one in summaries.items()},
        },
    )
    run.write_bytes(CURVES, picture(steps, losses, differences).encode())
    return ForkComparison(first=steps[0], last=steps[-1], forks=summaries)


def metrics_of(checkpoint: Checkpoint) -> Lines:
    """Every line of a run's metrics by step."""
    lines = (json.loads(text) for text in checkpoint.read(METRICS).splitlines())
    return {line["step"]: line for line in lines}


def summary(control: Sequence[Mapping[str, Any]], fork: Sequence[Mapping[str, Any]]) -> ForkSummary:
    """What the lines of equal steps come to. Skipped steps without a loss are left out of the differences."""
    pairs = [(_loss(a), _loss(b)) for a, b in zip(control, fork, strict=True)]
    found = [b - a for a, b in pairs if a is not None and b is not None]
    last = found[-max(1, len(found) // 4) :]
    batches = [[(line["tokens"], line["mixture"]) for line in lines] for lines in (control, fork)]
    speeds = [median(line["tokens_per_s"] for line in lines) for lines in (control, fork)]
    return ForkSummary(
        steps=len(pairs),
        same_batches=batches[0] == batches[1],
        identical=all(a == b for a, b in pairs),
        mean_difference=fmean(found) if found else math.nan,
        last_difference=fmean(last) if last else math.nan,
        largest_difference=max(map(abs, found), default=math.nan),
        speed=speeds[1] / speeds[0],
        skipped=sum(bool(line["skipped"]) for line in fork),
    )


def picture(
    steps: Sequence[int],
    losses: Mapping[str, Sequence[float | None]],
    differences: Mapping[str, Sequence[float | None]],
) -> str:
    """An SVG document: the losses of all above, below them each fork's difference from the control."""
    colours = {name: COLOURS[index % len(COLOURS)] for index, name in enumerate(losses)}
    legend = "".join(
        f'<text x="{LEFT + 130 * index}" y="16" fill="{colour}">{escape(name)}</text>'
        for index, (name, colour) in enumerate(colours.items())
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {2 * (HEIGHT + GAP) + 10}"',
            ' font-family="sans-serif" font-size="12">',
            '<rect width="100%" height="100%" fill="white"/>',
            legend,
            *_panel(GAP, "loss, nats per token", steps, losses, colours),
            *_panel(HEIGHT + 2 * GAP, "fork − control", steps, differences, colours),
            "</svg>",
        ]
    )


def _panel(
    top: float,
    title: str,
    steps: Sequence[int],
    curves: Mapping[str, Sequence[float | None]],
    colours: Mapping[str, str],
) -> list[str]:
    levels = [level for curve in curves.values() for level in curve if level is not None] or [0.0]
    margin = (max(levels) - min(levels)) * 0.05 or 1e-6
    low, high = min(levels) - margin, max(levels) + margin
    height, width, span = HEIGHT - 40, WIDTH - LEFT - 24, max(1, steps[-1] - steps[0])

    def place(step: int, level: float) -> str:
        x = LEFT + width * (step - steps[0]) / span
        return f"{x:.1f},{top + height * (high - level) / (high - low):.1f}"

    parts = [f'<text x="{LEFT}" y="{top - 8:.0f}" fill="#333">{escape(title)}</text>']
    for share in (0.0, 0.5, 1.0):
        level, y = low + (high - low) * share, top + height * (1 - share)
        parts.append(f'<path d="M{LEFT} {y:.1f}h{width}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#333">{level:.4g}</text>')
        step = round(steps[0] + span * share)
        x = LEFT + width * share
        parts.append(f'<text x="{x:.1f}" y="{top + height + 18:.0f}" text-anchor="middle" fill="#333">{step}</text>')
    for name, curve in curves.items():
        points = " ".join(place(step, level) for step, level in zip(steps, curve, strict=True) if level is not None)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colours[name]}" stroke-width="1.5"/>')
    return parts


def _strict(figures: Mapping[str, Any]) -> dict[str, Any]:
    """The figures with null for what is not known."""
    return {name: None if isinstance(one, float) and math.isnan(one) else one for name, one in figures.items()}


def _loss(line: Mapping[str, Any]) -> float | None:
    loss: float | None = line["loss"]
    return loss


def _differences(fork: Sequence[float | None], control: Sequence[float | None]) -> list[float | None]:
    return [None if a is None or b is None else b - a for a, b in zip(control, fork, strict=True)]
