"""The shares of a mixture over a run as one SVG: stacked areas, readable where it lies, without a plotting library."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 860, 380, 48, 200, 20, 36
SHOWN = 12
"""Cells with an area of their own, those with the largest shares; all others are one area."""
HUES = 360
TICKS = 5


def render_shares(report: Mapping[str, Any]) -> str:
    """An SVG document of the ``course`` of each cell of a report, from 0% to 100% of the run."""
    cells = sorted(report["cells"], key=lambda cell: (-sum(cell["course"]), cell["name"]))
    layers = [(cell["name"], cell["course"]) for cell in cells[:SHOWN]]
    if len(cells) > SHOWN:
        rest = [sum(values) for values in zip(*(cell["course"] for cell in cells[SHOWN:]), strict=True)]
        layers.append((f"{len(cells) - SHOWN} others", rest))
    points = len(layers[0][1])

    def x(point: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * point / points

    def y(share: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - share)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}"',
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    below = [0.0] * points
    for index, (name, course) in enumerate(layers):
        above = [low + share for low, share in zip(below, course, strict=True)]
        upper = [f"{x(at)},{y(above[at]):.2f} {x(at + 1)},{y(above[at]):.2f}" for at in range(points)]
        lower = [f"{x(at + 1)},{y(below[at]):.2f} {x(at)},{y(below[at]):.2f}" for at in reversed(range(points))]
        colour = f"hsl({HUES * index * 0.382 % HUES:.0f},45%,{62 if index % 2 else 50}%)"
        parts.append(f'<polygon points="{" ".join(upper + lower)}" fill="{colour}"><title>{escape(name)}</title>')
        parts.append("</polygon>")
        row = TOP + 14 + 18 * index
        mean = sum(course) / points
        parts.append(f'<rect x="{WIDTH - RIGHT + 14}" y="{row - 9}" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 30}" y="{row}">{escape(name)} ({mean:.2%})</text>')
        below = above
    for tick in range(TICKS + 1):
        share = tick / TICKS
        parts.append(f'<text x="{LEFT - 6}" y="{y(share) + 4:.1f}" text-anchor="end">{share:.0%}</text>')
        at = x(round(points * share))
        parts.append(f'<text x="{at:.1f}" y="{HEIGHT - 16}" text-anchor="middle">{share:.0%}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 2}" text-anchor="middle">of the run</text></svg>')
    return "".join(parts)
