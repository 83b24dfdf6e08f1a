"""Lines of a text that may be boilerplate, and what is cut with them.

Extracted pages are blocks with blank lines between them; the rows of a table are lines with bars between cells, and
code stands as it was. A line is compared in a folded form (NFKC, without case, white space and numbers as one).

Imports numpy; import this module inside step bodies only.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import xxhash

from marin.data.dedup.spans_config import LineConfig
from marin.data.filtering.splitting import UNSPACED_CHARACTER

CELL_BAR = " | "
_BULLETS = "•-*"
_UNSPACED_WEIGHT = 3
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
        starts: where each line begins, and last the length of the text plus one.
        blank: whether a line has nothing but white space.
        keys: hash of the folded line; None for lines that are no candidates.
        paragraphs: candidates of several lines: number of the first line, number after the last, hash.
    """

    starts: list[int]
    blank: list[bool]
    keys: list[int | None]
    paragraphs: list[tuple[int, int, int]]

    def hashes(self) -> set[int]:
        """The hashes of all candidates, once each."""
        return {key for key in self.keys if key is not None} | {key for _, _, key in self.paragraphs}


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
    lines = text.split("\n")
    plain = [" ".join(line.split()) for line in folded(text, config.digits).split("\n")]
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    keys: list[int | None] = [None] * len(lines)
    paragraphs: list[tuple[int, int, int]] = []
    for first, after in _blocks(plain):
        if _is_code(lines[first:after]):
            continue
        candidates = [_is_candidate(lines, at, first, after) for at in range(first, after)]
        for at, candidate in enumerate(candidates, start=first):
            if candidate and _size(plain[at]) >= config.least_characters:
                keys[at] = _hash(plain[at])
        if config.paragraphs and after - first > 1 and any(candidates):
            whole = "\n".join(plain[first:after])
            if _size(whole) >= config.least_characters:
                paragraphs.append((first, after, _hash(whole)))
    return Lines(starts, [not line for line in plain], keys, paragraphs)


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
    return sum(map(_looks_like_code, block)) >= _CODE_SHARE * len(block)


def _looks_like_code(line: str) -> bool:
    text = line.strip()
    # Extraction folds white space but in code, and before the bullets and numbers of inner lists.
    indented = line[0] in " \t" and not (text[0] in _BULLETS or text[0].isdigit())
    return indented or _CODE_SIGNS.search(text) is not None


def _is_candidate(lines: Sequence[str], at: int, first: int, after: int) -> bool:
    """Whether a line is words, and no row of a table of several rows."""
    line = lines[at]
    if _looks_like_code(line):
        return False
    if CELL_BAR in line and any(CELL_BAR in lines[n] for n in (at - 1, at + 1) if first <= n < after):
        return False
    signs = "".join(line.split())
    return sum(map(_is_letter, signs)) >= _LEAST_LETTERS * len(signs)


def _is_letter(sign: str) -> bool:
    return sign.isalpha() or (not sign.isascii() and unicodedata.category(sign)[0] == "M")


def _size(plain: str) -> int:
    if plain.isascii():
        return len(plain)
    return len(plain) + (_UNSPACED_WEIGHT - 1) * len(UNSPACED_CHARACTER.findall(plain))


def _hash(plain: str) -> int:
    return xxhash.xxh3_64_intdigest(plain.encode("utf-8", "replace"))
