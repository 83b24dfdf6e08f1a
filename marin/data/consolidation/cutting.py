"""Cutting repeated passages out of texts.

Imports pyarrow; import this module inside step bodies only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from marin.data.consolidation.holders import Left
from marin.data.consolidation.places import Place
from marin.data.documents.attributes import read_attributes
from marin.data.documents.normalise import normalise_text
from marin.execution import StepError

DROPPED, OTHER_SPLIT = "dropped", "other_split"
"""What is wrong with the document that holds a passage, where that stays in its place."""

Span = tuple[int, int]
"""Characters of a text, from the first up to the second, which is not one of them."""


@dataclass(frozen=True)
class CutText:
    """A text without its repeated passages.

    Attributes:
        text: what is left.
        characters: characters that were cut, all kinds together.
        by_kind: characters of the passages of each kind; passages of two kinds may overlap.
        passages: what was cut of each kind.
        left: characters of each repeated passage that stays, by what is wrong with the document that holds its text.
    """

    text: str
    characters: int
    by_kind: dict[str, int]
    passages: dict[str, tuple[str, ...]]
    left: dict[str, list[int]]


class Cuts:
    """The passages of a shard's documents that are to be cut: columns, and no Python object for a document."""

    def __init__(self, place: Place, left: Left) -> None:
        self._place = place
        self._left = left
        self._kinds: list[tuple[str, pa.Array, pa.Array]] = []
        self._any = pa.repeat(pa.scalar(False), place.shard.rows)
        for cut in place.cuts:
            table = read_attributes(cut, place.pages, place.shard, columns=("starts", "ends"))
            starts, ends = (table.column(name).combine_chunks() for name in ("starts", "ends"))
            self._kinds.append((cut.kind, starts, ends))
            has = pc.fill_null(pc.greater(pc.list_value_length(starts), 0), False)
            self._any = pc.or_(self._any, has)

    def rows(self, start: int, count: int) -> list[int]:
        """The rows with passages, of so many from one on."""
        found: list[int] = pc.add(pc.indices_nonzero(self._any[start : start + count]), start).to_pylist()
        return found

    def apply(self, row: int, text: str) -> CutText:
        """Cut the passages of one row out of its text.

        Raises:
            StepError: the passages do not lie in the text one after the other.
        """
        spans = {kind: self._spans(row, kind, starts, ends, text) for kind, starts, ends in self._kinds}
        left: dict[str, list[int]] = {}
        kinds = [kind for kind, _, _ in self._kinds]
        staying = self._left.of(self._place.start + row)
        for (kind, number), lost in staying.items():
            begin, end = spans[kinds[kind]][number]
            left.setdefault(DROPPED if lost else OTHER_SPLIT, []).append(end - begin)
        for at, name in enumerate(kinds):
            spans[name] = [span for number, span in enumerate(spans[name]) if (at, number) not in staying]
        spans = {kind: found for kind, found in spans.items() if found}
        union = merged(span for found in spans.values() for span in found)
        return CutText(
            text=cut(text, union),
            characters=_length(union),
            by_kind={kind: _length(found) for kind, found in spans.items()},
            passages={kind: tuple(text[begin:end] for begin, end in found) for kind, found in spans.items()},
            left=left,
        )

    def _spans(self, row: int, kind: str, starts: pa.Array, ends: pa.Array, text: str) -> list[Span]:
        begins, stops = starts[row].as_py() or [], ends[row].as_py() or []
        flat = [place for pair in zip(begins, stops, strict=False) for place in pair]
        ordered = all(one <= other for one, other in zip([0, *flat], [*flat, len(text)], strict=True))
        if len(begins) != len(stops) or not ordered:
            raise StepError(
                f"the {kind} of row {row} of {self._place.shard.name} do not lie in its text of {len(text)} "
                "characters one after the other; make them again from the same pages"
            )
        return list(zip(begins, stops, strict=True))


def merged(spans: Iterable[Span]) -> list[Span]:
    """Spans in order, with those that overlap or touch made one."""
    found: list[Span] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found


def cut(text: str, spans: Sequence[Span]) -> str:
    """A text without some spans of it, in stored form.

    Where two parts meet, as many blank lines stay as the side has that has more, and nothing at an end that was cut;
    whether the span of a line holds its break makes no difference. Words that meet in a line keep a space.

    Args:
        text: the text.
        spans: in order, without overlap.
    """
    if not spans:
        return text
    edges = [0, *(place for span in spans for place in _with_break(text, span)), len(text)]
    parts = [text[begin:end] for begin, end in zip(edges[::2], edges[1::2], strict=True)]
    out: list[str] = []
    trailing = blank = 0
    for number, part in enumerate(parts):
        if not part.strip():
            blank = max(blank, part.count("\n"))
            continue
        body = part.strip("\n")
        leading = len(part) - len(part.lstrip("\n"))
        if out:
            between = text[edges[2 * number - 1] : edges[2 * number]]
            blank = max(blank, leading)
            out.append(_seam(out[-1], body, 1 + max(blank, trailing - 1) if trailing else blank, between))
        elif number == 0:
            out.append("\n" * leading)
        out.append(body)
        trailing, blank = len(part) - len(part.rstrip("\n")), 0
    end = "\n" * trailing if parts[-1].strip() else ""
    return normalise_text("".join([*out, end]))


def _with_break(text: str, span: Span) -> Span:
    """A span, with the break behind it where it is of whole lines."""
    begin, end = span
    whole = (begin == 0 or text[begin - 1] == "\n") and text[end : end + 1] == "\n" and text[end - 1] != "\n"
    return (begin, end + 1) if whole else span


def _seam(before: str, after: str, breaks: int, between: str) -> str:
    """What stands where a cut was."""
    if breaks:
        return "\n" * breaks
    words_meet = not (before[-1].isspace() or after[0].isspace())
    return " " if words_meet and any(map(str.isspace, between)) else ""


def _length(spans: Iterable[Span]) -> int:
    return sum(end - begin for begin, end in spans)
