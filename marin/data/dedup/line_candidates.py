"""Lines of a text as they are compared, where they may be cut, and what goes with them.

A line is compared in a folded form: NFKC, without case, with white space and numbers as one. Extracted pages are blocks
with blank lines between them; the rows of a table are lines with bars between cells, and code stands as it was. How
often a line occurs is counted wherever it stands; whether it looks like code is asked only of lines that occur often.

Imports numpy; import this module inside step bodies only.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter

import xxhash

from marin.data.dedup.spans_config import LineConfig
from marin.data.filtering.splitting import UNSPACED_CHARACTER

CELL_BAR = " | "
_BULLETS = "•-*"
_UNSPACED_WEIGHT = 3
_PROMPT = re.compile(r"[#$%>]\s?\S|\S+@\S+[$#:~]")
_FIELD = re.compile(r"[\w-]+:\s")
_AROUND_WORDS = "•.,;:!?()[]\"'“”‘’«»-–—"
_LEAST_WORDS = 0.7
"""Share of plain words below which a line among others is a listing."""
_NUMBER = re.compile(r"[\d٠-٩]+")
_CODE_SHARE = 0.5
"""Share of the lines of a block that look like code, from which all of it is."""
_LEAST_LETTERS = 0.5
"""Share of letters below which a line is figures or signs, not words."""

# What prose hardly ever has: statements, calls, operators, prompts, comments, tags, and options of commands.
_CODE_SIGNS = re.compile(
    r"""
      [;{}\\]\s*$                                   # the end of a statement or of a block
    | ^(?:>>>|\.\.\.\s|\$\s|\#|//|/\*|\*/|--\s?\w|[{}<@]|:\w+:|\[\w+\]$)   # prompts, comments, decorators, tags
    | [=!<>+\-*/]=(?!=)|==|->|=>|::|&&|\|\||(?<![A-Z])\+\+|</|/>           # operators and tags
    | \w\(\)|\w\[(?!\d+\])\w*\]|\w\((?!e?s\))[^\s()]*\)                   # calls and subscripts
    | (?:^|\s)[\w.\[\]]+\s?=\s?\S                   # assignments
    | (?:^|\s)--?[A-Za-z][\w-]*(?:\s|=|$)           # options
    | ^(?:import|from|return|def|class|if|elif|else|for|while|try|except|with|raise|yield|print|assert|async|await
        |static|const|let|var|int|void|char|struct|typedef|public|private|package|use|fn|impl|include|require|export
        |SELECT|INSERT|UPDATE|DELETE|CREATE|DROP|ALTER|PRAGMA|sudo|pip|apt|apt-get|git|cd|ls|make)\b[^.!?]*$
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class Lines:
    """The lines of a text.

    Attributes:
        texts: the lines as they stand.
        starts: where each line begins, and last the length of the text plus one.
        blank: whether a line has nothing but white space.
        keys: hash of each folded line; None for lines that are too short.
        blocks: runs of lines that are not blank: number of the first line, number after the last.
        paragraphs: blocks of several lines, with their hash.
    """

    texts: list[str]
    starts: list[int]
    blank: list[bool]
    keys: list[int | None]
    blocks: list[tuple[int, int]]
    paragraphs: list[tuple[int, int, int]]

    def hashes(self) -> set[int]:
        """The hashes of all lines and paragraphs that are counted, once each."""
        return {key for key in self.keys if key is not None} | {key for _, _, key in self.paragraphs}

    def may_go(self, runs: Sequence[tuple[int, int]]) -> list[bool]:
        """Whether lines, or paragraphs, may be cut where they stand: they are words, and no part of code or a table.

        Args:
            runs: number of the first line, and number after the last, of lines of one block.
        """
        is_code: dict[int, bool] = {}
        found = []
        for first, after in runs:
            number = bisect_right(self.blocks, first, key=itemgetter(0)) - 1
            begin, end = self.blocks[number]
            if number not in is_code:
                is_code[number] = _is_code(self.texts[begin:end])
            found.append(not is_code[number] and any(self._is_words(at, begin, end) for at in range(first, after)))
        return found

    def _is_words(self, at: int, begin: int, end: int) -> bool:
        """Whether a line of a block is words by itself: no row of a table, and not what leads to lines below it."""
        line = self.texts[at].strip()
        if line.endswith((":", "：")) or _looks_like_code(self.texts[at]):
            return False
        if CELL_BAR in line and any(CELL_BAR in self.texts[n] for n in (at - 1, at + 1) if begin <= n < end):
            return False
        signs = "".join(line.split())
        return sum(map(_is_letter, signs)) >= _LEAST_LETTERS * len(signs)


def folded(text: str, digits: bool) -> str:
    """A text as its lines are compared, with the same line breaks. White space is not folded yet."""
    if not text.isascii() and not unicodedata.is_normalized("NFKC", text):
        text = unicodedata.normalize("NFKC", text)
    text = text.casefold()
    if not text.isascii() and not unicodedata.is_normalized("NFKC", text):
        text = unicodedata.normalize("NFKC", text)
    return _NUMBER.sub("0", text) if digits else text


def read_lines(text: str, config: LineConfig) -> Lines:
    """The lines of a text with the hashes of those that may be boilerplate. Never raises on any text."""
    texts = text.split("\n")
    plain = [" ".join(line.split()) for line in folded(text, config.digits).split("\n")]
    starts = [0, *accumulate(len(line) + 1 for line in texts)]
    least = config.least_characters
    keys = [_hash(line) if len(line) >= least or _size(line) >= least else None for line in plain]
    blocks = list(_blocks(plain))
    paragraphs: list[tuple[int, int, int]] = []
    if config.paragraphs:
        for first, after in blocks:
            if after - first > 1:
                whole = "\n".join(plain[first:after])
                if _size(whole) >= least:
                    paragraphs.append((first, after, _hash(whole)))
    return Lines(texts, starts, [not line for line in plain], keys, blocks, paragraphs)


def cut_spans(lines: Lines, cut: Sequence[bool]) -> list[tuple[int, int]]:
    """Characters [start, end) to cut for these lines, ascending and disjoint.

    A line goes with its line break, a block that goes as a whole with the blank lines after it, and what goes at the
    end of the text with the line breaks before it.
    """
    gone = list(cut)
    gap = False
    for at, blank in enumerate(lines.blank):
        if blank:
            gone[at] = gap
        else:
            before = at == 0 or lines.blank[at - 1]
            gap = gone[at] and (gap or before)
    spans: list[tuple[int, int]] = []
    last_kept = -1
    for at, goes in enumerate(gone):
        if not goes:
            if not lines.blank[at]:
                last_kept = at
            continue
        if spans and spans[-1][1] == lines.starts[at]:
            spans[-1] = spans[-1][0], lines.starts[at + 1]
        else:
            spans.append((lines.starts[at], lines.starts[at + 1]))
    length = lines.starts[-1] - 1
    if spans and spans[-1][1] > length:
        # Nothing follows: the break before goes, since the last line has none after it.
        start = lines.starts[last_kept + 1] - 1 if last_kept >= 0 else 0
        spans = [span for span in spans if span[1] <= start] + [(start, length)]
    return [span for span in spans if span[0] < span[1]]


def _blocks(plain: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Runs of lines that are not blank: the number of the first, and the number after the last."""
    first: int | None = None
    for at, line in enumerate(plain):
        if line:
            first = at if first is None else first
        elif first is not None:
            yield first, at
            first = None
    if first is not None:
        yield first, len(plain)


def _is_code(block: Sequence[str]) -> bool:
    """Whether a block is code, or what a program printed. A paragraph of prose is mostly a single line."""
    if len(block) == 1:
        return _looks_like_code(block[0])
    if _PROMPT.match(block[0]):
        return True
    return sum(_looks_like_code(line) or _looks_printed(line) for line in block) >= _CODE_SHARE * len(block)


def _looks_printed(line: str) -> bool:
    """Whether a line of several has the form of settings or of a listing: no capital, a field, or few plain words."""
    words = line.split()
    if line[0].islower() or _FIELD.match(line):
        return True
    return sum(word.strip(_AROUND_WORDS).isalpha() for word in words) < _LEAST_WORDS * len(words)


def _looks_like_code(line: str) -> bool:
    text = line.strip()
    # Extraction folds white space but in code, and before the bullets and numbers of inner lists.
    indented = line[0] in " \t" and not (text[0] in _BULLETS or text[0].isdigit())
    return indented or _CODE_SIGNS.search(text) is not None


def _is_letter(sign: str) -> bool:
    return sign.isalpha() or (not sign.isascii() and unicodedata.category(sign)[0] == "M")


def _size(plain: str) -> int:
    """Characters of a folded text, as far as they tell whether it is too short."""
    if plain.isascii():
        return len(plain)
    return len(plain) + (_UNSPACED_WEIGHT - 1) * len(UNSPACED_CHARACTER.findall(plain))


def _hash(plain: str) -> int:
    return xxhash.xxh3_64_intdigest(plain.encode("utf-8", "replace"))
