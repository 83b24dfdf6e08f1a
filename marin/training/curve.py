"""The loss curve of a run as one SVG: readable where it lies, without a plotting library."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 800, 420, 64, 24, 28, 48
TICKS = 5
POINTS = 1000
"""A longer curve is thinned out to about this many points."""

Point = tuple[float, float]


def render_curve(training: Sequence[Point], validation: Sequence[Point], unigram: float | None) -> str:
    """An SVG document of (step, loss) points: a line for training, dots for validation, a dashed unigram line."""
    levels = [loss for _, loss in (*training, *validation)] + ([unigram] if unigram is not None else [])
    if not levels:
        raise ValueError("there is no loss to draw")
    low, high = min(levels), max(levels)
    margin = (high - low) * 0.05 or 0.5
    low, high = low - margin, high + margin
    last = max(step for step, _ in (*training, *validation, (1.0, 0.0)))

    def x(step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * step / last

    def y(loss: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - loss) / (high - low)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"',
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for tick in range(TICKS + 1):
        loss, step = low + (high - low) * tick / TICKS, last * tick / TICKS
        parts.append(f'<path d="M{LEFT} {y(loss):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(_text(LEFT - 8, y(loss) + 4, f"{loss:.2f}", "end"))
        parts.append(_text(x(step), HEIGHT - BOTTOM + 18, f"{step:.0f}", "middle"))
    thinned = training[:: max(1, len(training) // POINTS)]
    line = " ".join(f"{x(step):.1f},{y(loss):.1f}" for step, loss in thinned)
    parts.append(f'<polyline points="{line}" fill="none" stroke="#1f77b4" stroke-width="1.5"/>')
    parts += [f'<circle cx="{x(step):.1f}" cy="{y(loss):.1f}" r="4" fill="#d62728"/>' for step, loss in validation]
    if unigram is not None:
        parts.append(f'<path d="M{LEFT} {y(unigram):.1f}H{WIDTH - RIGHT}" stroke="#555" stroke-dasharray="6 4"/>')
        parts.append(_text(WIDTH - RIGHT, y(unigram) - 6, f"unigram model {unigram:.3f}", "end"))
    parts += _legend()
    return "\n".join([*parts, "</svg>"])


def _legend() -> Iterable[str]:
    yield _text(LEFT, TOP - 10, "loss in nats per token: training (line), held out (dots)", "start")
    yield _text(WIDTH / 2, HEIGHT - 10, "step", "middle")


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="#333">{escape(text)}</text>'
