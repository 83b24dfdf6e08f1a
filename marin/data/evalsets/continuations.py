"""Multiple-choice items: which of several sentences continues a passage?

The wrong continuations are true ones of other documents, of similar length. How many of them are shorter than the true
one is drawn evenly, so that length says nothing about the answer.
"""

from __future__ import annotations

import bisect
import itertools
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from marin.data.evalsets.config import EvalSetConfig
from marin.execution import derive_seed

_SENTENCE_END = re.compile(r"(?<=[.!?。！？])[\"'”’)\]]*(?:\s+|(?<=[。！？])|$)")
_FINAL = re.compile(r"[.!?。！？][\"'”’)\]]*$")


@dataclass(frozen=True)
class Continuation:
    """A passage and the sentence that follows it.

    Attributes:
        document_id: where it comes from.
        source: source of the document.
        context: the passage.
        text: the sentence.
        place: number of the first character of the sentence.
    """

    document_id: str
    source: str
    context: str
    text: str
    place: int

    @property
    def id(self) -> str:
        """Unique name of the item."""
        return f"{self.document_id}:{self.place}"


def continuations(document_id: str, source: str, text: str, config: EvalSetConfig) -> list[Continuation]:
    """Up to ``items_per_document`` passages of a document with their next sentences, drawn by seed."""
    found = list(_all_continuations(document_id, source, text, config))
    draw = random.Random(derive_seed(config.seed, f"{config.name}/places/{document_id}"))
    return sorted(draw.sample(found, min(config.items_per_document, len(found))), key=lambda item: item.place)


def _all_continuations(document_id: str, source: str, text: str, config: EvalSetConfig) -> Iterator[Continuation]:
    for begin, end in sentences(text):
        sentence = text[begin:end].strip()
        if not config.shortest_continuation <= len(sentence) <= config.longest_continuation:
            continue
        if "\n" in sentence or not _FINAL.search(sentence):
            continue
        context = _tail(text, begin, config.context_characters)
        if 4 * len(context) >= config.context_characters:
            yield Continuation(document_id, source, context, sentence, begin)


def sentences(text: str) -> Iterator[tuple[int, int]]:
    """Begin and end of every sentence: up to a sign that ends one, or up to the end of the line."""
    begin = 0
    for line in text.splitlines(keepends=True):
        start = begin
        for found in _SENTENCE_END.finditer(line):
            end = begin + found.end()
            if end > start:
                yield start, end
                start = end
        if begin + len(line) > start:
            yield start, begin + len(line)
        begin += len(line)


def _tail(text: str, end: int, limit: int) -> str:
    """The characters before a place of a text, as many as the limit allows, from a word's beginning to a word's end."""
    while end and text[end - 1].isspace():
        end -= 1
    if end <= limit:
        return text[:end].lstrip()
    part = text[end - limit : end]
    if not text[end - limit - 1].isspace():
        part = part[re.search(r"\s|$", part).end() :]  # type: ignore[union-attr]  # `$` always matches
    return part.lstrip()


def choice_items(pool: Sequence[Continuation], config: EvalSetConfig) -> list[dict[str, Any]]:
    """Multiple-choice items, sources taking turns; the same for any order of the pool.

    A continuation without enough others of other documents gives no item.
    """
    by_source: dict[str, list[Continuation]] = {}
    for item in sorted(pool, key=lambda item: item.id):
        by_source.setdefault(item.source, []).append(item)
    items: list[dict[str, Any]] = []
    queues: list[list[dict[str, Any]]] = []
    everything = _Pool(pool)
    for source in sorted(by_source):
        own = _Pool(by_source[source])
        draw = random.Random(derive_seed(config.seed, f"{config.name}/order/{source}"))
        queue = by_source[source]
        draw.shuffle(queue)
        made = (_choice_item(item, own, everything, config) for item in queue)
        whole = (item for item in made if item is not None)
        queues.append(list(itertools.islice(whole, config.choice_items)))
    for turn in range(max(map(len, queues), default=0)):
        items.extend(queue[turn] for queue in queues if turn < len(queue))
    return items[: config.choice_items]


class _Pool:
    """Continuations by length."""

    def __init__(self, items: Sequence[Continuation]) -> None:
        self.items = sorted(items, key=lambda item: (len(item.text), item.id))
        self.lengths = [len(item.text) for item in self.items]

    def near(self, item: Continuation, shorter: int, count: int) -> list[str]:
        """Texts of other documents that are nearest in length, none equal, so many of them shorter where possible."""
        length = len(item.text)
        first, last = bisect.bisect_left(self.lengths, length), bisect.bisect_right(self.lengths, length)
        below = _take((self.items[at] for at in reversed(range(first))), item, count)
        above = _take((self.items[at] for at in range(last, len(self.items))), item, count, without=below)
        shorter = max(min(shorter, len(below)), count - len(above))
        return below[:shorter] + above[: count - shorter]


def _take(candidates: Iterator[Continuation], item: Continuation, count: int, without: Sequence[str] = ()) -> list[str]:
    texts: list[str] = []
    documents = {item.document_id}
    for candidate in candidates:
        if len(texts) == count:
            break
        if candidate.document_id in documents or candidate.text in {item.text, *texts, *without}:
            continue
        documents.add(candidate.document_id)
        texts.append(candidate.text)
    return texts


def _choice_item(item: Continuation, own: _Pool, everything: _Pool, config: EvalSetConfig) -> dict[str, Any] | None:
    draw = random.Random(derive_seed(config.seed, f"{config.name}/choices/{item.id}"))
    count = config.choices - 1
    shorter = draw.randint(0, count)
    wrong = own.near(item, shorter, count)
    if len(wrong) < count:
        wrong = everything.near(item, shorter, count)
    if len(wrong) < count:
        return None
    choices = [item.text, *wrong]
    draw.shuffle(choices)
    return {
        "id": item.id,
        "source": item.source,
        "context": item.context,
        "choices": choices,
        "answer": choices.index(item.text),
        "document_id": item.document_id,
    }
