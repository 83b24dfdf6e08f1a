"""What one task of an extraction reads: neighbouring WARC files, or a part of a large one."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import BinaryIO

from marin.data.crawl.artifacts import Crawl, WarcFile
from marin.data.crawl.config import MIB, ExtractConfig
from marin.data.crawl.external import open_external
from marin.data.crawl.warc.records import Span
from marin.data.crawl.warc.splitting import split_file

MOST_BYTES = 256 * MIB
"""A task reads no more compressed bytes than this, unless a file cannot be read in parts."""

LEAST_BYTES = 8 * MIB
"""A task reads at least this much, about 64 MiB of pages, as long as there is more."""

_TASKS = 16


@dataclass(frozen=True)
class Bundle:
    """What one task reads.

    Attributes:
        crawl: the crawl, with the task's own files only.
        first: place of the first file in the whole crawl.
        span: the part that is read, where there is one file.
        part: number of that part.
        config: how to extract.
    """

    crawl: Crawl
    first: int
    span: Span
    part: int
    config: ExtractConfig

    @property
    def stem(self) -> str:
        """Start of the names of the document shards, which sort as the records do."""
        part = f"-{self.part:03d}" if self.is_part else ""
        return f"{self.crawl.source}-{self.first:05d}{part}"

    @property
    def is_part(self) -> bool:
        """Whether this is a part of a file."""
        return self.part > 0 or self.span.end is not None


def plan_bundles(crawl: Crawl, config: ExtractConfig) -> list[Bundle]:
    """The crawl's files in tasks of about equal size, enough of them to spread and each large enough to be worth it.

    Files lie together until they make a task; one that is larger than a task is read in parts where its records can be
    found (see :mod:`marin.data.crawl.warc.splitting`). Neither workers nor the order of their work play a part.
    """
    sizes = [MOST_BYTES if warc.size is None else warc.size for warc in crawl.warcs]
    target = min(MOST_BYTES, max(LEAST_BYTES, sum(sizes) // _TASKS))
    bundles: list[Bundle] = []
    first = filled = 0

    def close(end: int) -> None:
        nonlocal first, filled
        if end > first:
            bundles.append(Bundle(_only(crawl, crawl.warcs[first:end]), first, Span(), 0, config))
        first, filled = end, 0

    for index, (warc, size) in enumerate(zip(crawl.warcs, sizes, strict=True)):
        if warc.size is not None and size > 2 * target:
            spans = split_file(lambda warc=warc: open_warc(crawl, warc), size, target)  # type: ignore[misc]
            if len(spans) > 1:
                close(index)
                own = _only(crawl, (warc,))
                bundles += [Bundle(own, index, span, part, config) for part, span in enumerate(spans)]
                first = index + 1
                continue
        if filled and filled + size > MOST_BYTES:
            close(index)
        filled += size
        if filled >= target:
            close(index + 1)
    close(len(sizes))
    return bundles


def open_warc(crawl: Crawl, warc: WarcFile) -> BinaryIO:
    """A stream over a file of a crawl, wherever it lies."""
    return crawl.open(warc.name) if warc.url is None else open_external(warc)


def _only(crawl: Crawl, warcs: tuple[WarcFile, ...]) -> Crawl:
    """The crawl with some of its files: a list of a hundred thousand files need not travel with each task."""
    part = copy.copy(crawl)
    object.__setattr__(part, "warcs", warcs)
    return part
