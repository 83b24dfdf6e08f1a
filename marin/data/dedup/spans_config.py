"""Configuration of what is found within documents: lines that recur on many pages, and long repeated spans."""

from __future__ import annotations

from dataclasses import dataclass

from marin.execution import runtime

MIB = 1024**2


@dataclass(frozen=True)
class LineConfig:
    """Which lines, and paragraphs of several lines, are boilerplate.

    A line is boilerplate on a site, when more than ``least_documents`` documents of the site have it and these are
    more than the ``share`` of its documents; and everywhere, when more than ``least_sites`` sites have it. A site is
    the host of the documents' addresses, or the source for documents without.

    Attributes:
        least_documents: documents of a site that may have a line in any case.
        share: share of a site's documents that may have a line in any case.
        least_sites: sites that may have a line in any case; None looks at each site by itself.
        least_characters: shorter lines are never boilerplate by themselves. A character of a script without spaces
            counts as three.
        digits: lines that differ in their numbers only are equal, as in ``Page 3 of 12``.
        paragraphs: paragraphs of several lines are looked at as wholes too, so that their short lines go with them.
        keep_first: one document of those that have a line keeps it where it stands first: the one of which the text
            has the least hash.
        partition_bytes: text whose lines are counted in one part; it takes about as much memory.
    """

    least_documents: int = 10
    share: float = 0.05
    least_sites: int | None = 100
    least_characters: int = 20
    digits: bool = False
    paragraphs: bool = True
    keep_first: bool = False
    partition_bytes: int = runtime(512 * MIB)

    def __post_init__(self) -> None:
        for name in ("least_documents", "least_characters", "partition_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"LineConfig.{name} is {getattr(self, name)!r}; it must be at least 1")
        if self.least_sites is not None and self.least_sites < 1:
            raise ValueError(f"LineConfig.least_sites is {self.least_sites!r}; give at least 1, or null for no limit")
        if not 0.0 <= self.share < 1.0:
            raise ValueError(f"LineConfig.share is {self.share!r}; it must be at least 0 and below 1")


@dataclass(frozen=True)
class SpanConfig:
    """How long a span of words must be to count as repeated. Which of its places keeps it follows from `DedupConfig`.

    50 is what Lee et al. 2022 (https://arxiv.org/abs/2107.06499) use, of tokens; here it counts words.

    Attributes:
        least_words: words of the shortest span.
        partition_bytes: text whose n-grams are compared in one part. It takes about fifteen times as much memory
            where all of the text is repeated, and a fifth of it where nothing is.
    """

    least_words: int = 50
    partition_bytes: int = runtime(128 * MIB)

    def __post_init__(self) -> None:
        if self.least_words < 2:
            raise ValueError(f"SpanConfig.least_words is {self.least_words!r}; it must be at least 2")
        if self.partition_bytes < 1:
            raise ValueError(f"SpanConfig.partition_bytes is {self.partition_bytes!r}; it must be at least 1")
