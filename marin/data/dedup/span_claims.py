"""Spans between the shard that repeats them and the shard that holds their preferred place.

The one sends the words that it takes for repeated; the other compares them with its own, and answers with the id and
the characters of the place.

Imports numpy; import this module inside step bodies only.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marin.data.dedup.exchange import load_columns, store_columns
from marin.data.dedup.span_matches import Repeats, Segment, segments
from marin.data.dedup.span_words import PlacedWords, cut_range, placed_words
from marin.data.documents.artifacts import Documents, DocumentShard
from marin.data.documents.io import iterate_batches
from marin.execution import Intermediate

_SHOWN_CHARACTERS = 300


@dataclass(frozen=True)
class ClaimTask:
    """One shard with the n-grams that it sent, and the answers to them by part. Pickles."""

    pages: Documents
    shard: DocumentShard
    grams: tuple[Intermediate | None, ...]
    places: tuple[Intermediate | None, ...]
    size: int


@dataclass(frozen=True)
class Claimed:
    """The spans of one shard.

    Attributes:
        spans: (number, row, first character, character after the last) of each.
        claims: by the number of the shard that holds their preferred place, what is to be confirmed there.
    """

    spans: Intermediate
    claims: dict[int, Intermediate]


@dataclass(frozen=True)
class ConfirmTask:
    """One shard that holds preferred places, with the claims of others by their numbers. Pickles."""

    pages: Documents
    shard: DocumentShard
    claims: dict[int, Intermediate]
    shown: int


@dataclass(frozen=True)
class TopSpan:
    """A place whose text recurs: its document, characters, how many spans repeat some of it, and their words."""

    id: str
    start: int
    end: int
    repeats: int
    words: int
    text: str


@dataclass(frozen=True)
class Confirmed:
    """The answers of one shard by the number of the shard that asked, and its places that recur most."""

    answers: dict[int, Intermediate]
    top: tuple[TopSpan, ...]


@dataclass
class _Reused:
    """A stretch of words of one document that spans elsewhere repeat."""

    first: int
    after: int
    repeats: int
    words: int


def texts_of(pages: Documents, shard: DocumentShard, rows: Set[int]) -> Iterator[tuple[int, str, str]]:
    """(row, id, text) of some documents of a shard, in order."""
    if not rows:
        return
    row = 0
    for batch in iterate_batches(pages, shard, columns=("id", "text"), batch_rows=256):
        here = [at for at in range(batch.num_rows) if row + at in rows]
        if here:
            ids, texts = batch.column("id"), batch.column("text")
            for at in here:
                yield row + at, ids[at].as_py(), texts[at].as_py()
        row += batch.num_rows


def claim_spans(task: ClaimTask) -> Claimed:
    """Make spans of the n-grams that stand in preferred places too, and send their words there."""
    found = segments(_repeats(task), task.size)
    by_row: dict[int, list[int]] = defaultdict(list)
    for number, segment in enumerate(found):
        by_row[segment.row].append(number)
    starts = np.zeros(len(found), np.int64)
    ends = np.zeros(len(found), np.int64)
    words = [""] * len(found)
    for row, _, text in texts_of(task.pages, task.shard, by_row.keys()):
        placed = placed_words(text)
        numbers = by_row[row]
        for number in numbers:
            words[number] = placed.between(found[number].first, found[number].after)
        for number, (start, end) in zip(numbers, _ranges(placed, [found[n] for n in numbers]), strict=True):
            starts[number], ends[number] = start, end
    rows = np.array([segment.row for segment in found], np.int64)
    return Claimed(
        spans=store_columns("spans.npy", np.arange(len(found)), rows, starts, ends),
        claims={
            shard: _claim(shard, [n for n, segment in enumerate(found) if segment.shard == shard], found, words)
            for shard in sorted({segment.shard for segment in found})
        },
    )


def _repeats(task: ClaimTask) -> Repeats:
    columns: list[list[NDArray[np.int32]]] = [[np.zeros(0, np.int32)] for _ in range(5)]
    for grams, places in zip(task.grams, task.places, strict=True):
        if grams is None or places is None:
            continue
        _, row, place = load_columns(grams)
        shard, of_row, of_place = load_columns(places)
        repeated = shard >= 0
        for column, values in zip(columns, (row, place, shard, of_row, of_place), strict=True):
            column.append(values[repeated])
    return Repeats(*(np.concatenate(column) for column in columns))


def _ranges(placed: PlacedWords, found: Sequence[Segment]) -> Iterator[tuple[int, int]]:
    """Characters of each segment of a document; one ends where the next begins when no word is between."""
    begin = 0
    while begin < len(found):
        end = begin
        while end + 1 < len(found) and found[end + 1].cut == found[end].after:
            end += 1
        start, stop = cut_range(placed, found[begin].cut, found[end].after)
        bounds = [start, *(placed.starts[one.cut] for one in found[begin + 1 : end + 1]), stop]
        yield from itertools.pairwise(bounds)
        begin = end + 1


def _claim(shard: int, numbers: Sequence[int], found: Sequence[Segment], words: Sequence[str]) -> Intermediate:
    chosen = [found[number] for number in numbers]
    text = "\n".join(words[number] for number in numbers).encode("utf-8", "replace")
    return store_columns(
        f"claims-{shard:05d}.npy",
        np.array(numbers, np.int64),
        np.array([one.of_row for one in chosen], np.int64),
        np.array([one.of_first for one in chosen], np.int64),
        np.array([one.cut - one.first for one in chosen], np.int64),
        np.frombuffer(text, np.uint8),
    )


@dataclass(frozen=True)
class _Claim:
    """A span that some shard takes for a repeat of a place: where it begins, how much of it is cut already, words."""

    asking: int
    number: int
    row: int
    first: int
    skipped: int
    words: str


def confirm_spans(task: ConfirmTask) -> Confirmed:
    """Compare claimed spans with the words of their preferred places."""
    by_row: dict[int, list[_Claim]] = defaultdict(list)
    for asking, file in task.claims.items():
        for claim in _claims(asking, file):
            by_row[claim.row].append(claim)
    answers: dict[int, list[tuple[int, bool, bytes, int, int]]] = {asking: [] for asking in task.claims}
    top: list[TopSpan] = []
    for row, document_id, text in texts_of(task.pages, task.shard, by_row.keys()):
        placed = placed_words(text)
        good: list[_Claim] = []
        for claim in by_row[row]:
            after = claim.first + claim.words.count(" ") + 1
            same = placed.between(claim.first, after) == claim.words
            start, end = placed.starts[claim.first + claim.skipped], placed.ends[after - 1]
            answers[claim.asking].append((claim.number, same, document_id.encode("utf-8", "replace"), start, end))
            if same:
                good.append(claim)
        top.extend(_top_span(document_id, placed, reused) for reused in _reused(good))
        top = sorted(top, key=lambda one: (-one.words, one.id, one.start))[: task.shown]
    return Confirmed({asking: _answer(asking, rows) for asking, rows in answers.items()}, tuple(top))


def _claims(asking: int, file: Intermediate) -> Iterator[_Claim]:
    numbers, rows, firsts, skipped, text = load_columns(file)
    words = text.tobytes().decode().split("\n")
    columns = (column.tolist() for column in (numbers, rows, firsts, skipped))
    for number, row, first, cut, of_claim in zip(*columns, words, strict=True):
        yield _Claim(asking, number, row, first, cut, of_claim)


def _answer(asking: int, rows: Sequence[tuple[int, bool, bytes, int, int]]) -> Intermediate:
    numbers, same, ids, starts, ends = zip(*rows, strict=True)
    return store_columns(
        f"answers-{asking:05d}.npy",
        np.array(numbers, np.int64),
        np.array(same, np.bool_),
        np.array(ids, "S"),
        np.array(starts, np.int64),
        np.array(ends, np.int64),
    )


def _reused(claims: Sequence[_Claim]) -> list[_Reused]:
    """The stretches of one document that claims lie in."""
    found: list[_Reused] = []
    for claim in sorted(claims, key=lambda one: (one.first, one.words)):
        size = claim.words.count(" ") + 1
        if found and claim.first < found[-1].after:
            last = found[-1]
            last.after = max(last.after, claim.first + size)
            last.repeats += 1
            last.words += size - claim.skipped
        else:
            found.append(_Reused(claim.first, claim.first + size, 1, size - claim.skipped))
    return found


def _top_span(document_id: str, placed: PlacedWords, reused: _Reused) -> TopSpan:
    start, end = placed.starts[reused.first], placed.ends[reused.after - 1]
    return TopSpan(
        document_id, start, end, reused.repeats, reused.words, placed.text[start : min(end, start + _SHOWN_CHARACTERS)]
    )
