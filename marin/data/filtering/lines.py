"""The lines of texts, and the words of all of them cut at once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from marin.data.filtering.words import Cut, WordTable, sums_of_runs

Integers = NDArray[np.int64]

# What Python cuts at beside the white space of ASCII.
_WIDE_SPACES = (
    "\x1c\x1d\x1e\x1f\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
)
_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Lines:
    """The lines of several texts behind one another.

    Attributes:
        lines: those that are not blank, stripped.
        bounds: where those of each text begin, and after the last where they end.
        paragraphs: for each text, numbers of the lines that begin a paragraph, counted from the text's first.
        sizes: characters of each line.
        pieces: pieces between spaces in each line.
        words: words in each line.
        marks: marks of all pieces of each line (see ``marin.data.filtering.marks``).
    """

    lines: list[str]
    bounds: Integers
    paragraphs: list[list[int]]
    sizes: Integers
    pieces: Integers
    words: Integers
    marks: NDArray[np.uint8]

    @property
    def per_text(self) -> Integers:
        """Lines in each text."""
        return np.diff(self.bounds)

    def sums(self, values: NDArray[Any]) -> Integers:
        """Sums over the lines of each text."""
        return sums_of_runs(values, self.per_text)

    def marked(self, mark: int) -> list[int]:
        """Numbers of the lines that hold a piece with a mark."""
        found: list[int] = np.flatnonzero(self.marks & mark).tolist()
        return found


def cut_texts(texts: Sequence[str], table: WordTable) -> tuple[Lines, Cut]:
    """The lines and words of texts."""
    lines: list[str] = []
    bounds = [0]
    paragraphs: list[list[int]] = []
    for text in texts:
        if not text.isascii():
            # One at a time: a pattern of them all would try each place of the text.
            for space in _WIDE_SPACES:
                text = text.replace(space, " ")
        starts: list[int] = []
        begin = True
        for line in map(str.strip, text.splitlines()):
            if not line:
                begin = True
                continue
            if begin:
                starts.append(len(lines) - bounds[-1])
                begin = False
            lines.append(line)
        bounds.append(len(lines))
        paragraphs.append(starts)
    # Arrow cuts at the white space of ASCII and finds equal pieces, so that each is looked up once.
    split = pc.ascii_split_whitespace(_arrow(lines))
    pieces = split.values.dictionary_encode()
    cut = table.cut(table.numbers(pieces.dictionary.to_pylist())[pieces.indices.to_numpy()])
    per_line = np.diff(split.offsets.to_numpy()).astype(np.int64)
    found = Lines(
        lines=lines,
        bounds=np.array(bounds, np.int64),
        paragraphs=paragraphs,
        sizes=np.fromiter(map(len, lines), np.int64, len(lines)),
        pieces=per_line,
        words=sums_of_runs(cut.counts, per_line),
        # No line is blank, so each has a piece.
        marks=np.bitwise_or.reduceat(cut.marks, np.cumsum(per_line) - per_line) if lines else cut.marks,
    )
    return found, cut


def _arrow(lines: list[str]) -> pa.StringArray:
    try:
        return pa.array(lines, pa.string())
    except UnicodeEncodeError:
        return pa.array([_SURROGATES.sub("\ufffd", line) for line in lines], pa.string())
