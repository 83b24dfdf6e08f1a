"""What the rows of the crawl benchmark share: inputs, and a fair clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Inputs:
    """What to measure on.

    Attributes:
        warcs: WARC files.
        articles: folder of pages with hand-marked bodies, or None.
        pages: pages of each WARC for rows with a slow peer.
        rounds: turns of each side; the best counts.
        large_mb: size of the WARC for the memory row, decompressed.
        texts: files of JSON lines with a `text` each, for rows that need no pages.
    """

    warcs: tuple[Path, ...]
    articles: Path | None
    pages: int
    rounds: int
    large_mb: int
    texts: tuple[Path, ...] = ()


def html_pages(warc: Path, limit: int) -> list[str]:
    """The first pages of a WARC as HTML."""
    from marin.data.crawl.warc.pages import page_of
    from marin.data.crawl.warc.records import FileReport, read_records

    pages: list[str] = []
    for record in read_records(lambda: warc.open("rb"), FileReport()):
        page = page_of(record)
        if not isinstance(page, str) and not page.is_text:
            pages.append(page.content)
        if len(pages) == limit:
            break
    return pages


def race(sides: Mapping[str, Callable[[], Any]], rounds: int) -> tuple[dict[str, float], dict[str, Any]]:
    """CPU seconds of each side's best turn, and what its first turn returned. Turns are interleaved.

    The first, since a peer may remember: trafilatura leaves out text that it has seen too often before.
    """
    best = dict.fromkeys(sides, float("inf"))
    results: dict[str, Any] = {}
    for _ in range(rounds):
        for name, run in sides.items():
            began = time.process_time()
            result = run()
            best[name] = min(best[name], time.process_time() - began)
            results.setdefault(name, result)
    return best, results


def row(
    name: str, ours: float, peer: float, unit: str, given: str, *, less_is_better: bool = False, **more: Any
) -> dict[str, Any]:
    """A line of the benchmark; `ratio` is above 1 where ours is better, and missing without a peer."""
    better, worse = (peer, ours) if less_is_better else (ours, peer)
    ratio = round(better / worse, 2) if peer else None
    return {
        "name": name,
        "ours": round(ours, 3),
        "peer": round(peer, 3),
        "ratio": ratio,
        "unit": unit,
        "input": given,
    } | more
