"""Text framed for scoring exactly as training framed it.

One rule: a request starts as a training document starts. If training put a BOS before each document, every
request has exactly one at its front; if it put none, there is none, and a token with nothing before it is charged
as a uniform guess (`ScoreRequest.unconditioned`), because training never asked the model for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol


class TextCodec(Protocol):
    """The part of the tokenizer that evaluation reads."""

    def encode(self, text: str) -> list[int]:
        """Token ids of a text without the edges of a document."""
        ...

    def encode_document(self, text: str) -> list[int]:
        """Token ids of a whole document, as training saw it."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids."""
        ...


@dataclass(frozen=True)
class Framing:
    """The tokens that training put at the edges of each document (None: no such token)."""

    bos_id: int | None
    eos_id: int | None


@dataclass(frozen=True)
class ScoreRequest:
    """Score the last `scored` of `ids`, each given everything before it in `ids`.

    The model reads ``ids[:-1]``, so ``len(ids) - 1`` may be as large as the number of its positions.
    """

    ids: tuple[int, ...]
    scored: int

    def __post_init__(self) -> None:
        if not 1 <= self.scored <= len(self.ids):
            raise ValueError(f"scored is {self.scored} of {len(self.ids)} ids; score at least one and at most all")

    @property
    def unconditioned(self) -> bool:
        """True where the first token is scored with nothing before it."""
        return self.scored == len(self.ids)


@dataclass(frozen=True)
class FramedAnswer:
    """Requests whose sum is the log-probability of one answer, and how it was made to fit."""

    requests: tuple[ScoreRequest, ...]
    context_cut: bool
    answer_windowed: bool

    @property
    def empty(self) -> bool:
        """True for an answer without text: its log-probability is 0 by definition."""
        return not self.requests


class Framer:
    """Turns texts into score requests for a model with `max_length` positions."""

    def __init__(self, codec: TextCodec, max_length: int) -> None:
        if max_length < 2:
            raise ValueError(f"max_length is {max_length}; a model needs at least 2 positions to score text")
        self.codec = codec
        self.max_length = max_length
        self._added, self.framing = _probe(codec)

    def encode(self, text: str) -> list[int]:
        """Ids of a text without any edge token, also from a codec that adds its own."""
        return self.codec.encode(text)[self._added :]

    def answer(self, context: str, answer: str) -> FramedAnswer:
        """Frame an answer after its context.

        White space at the end of the context belongs to the answer. The two are encoded together and divided where
        the joint encoding leaves that of the context alone: an entry that spans the border is part of the answer, so
        an answer always has a scored token. A context that is too long loses its left side (after the BOS). An answer
        that does not fit alone is scored in windows after the BOS, or without one after the last token of its context.
        """
        if not answer:
            return FramedAnswer((), context_cut=False, answer_windowed=False)
        stem = context.rstrip()
        answer = context[len(stem) :] + answer
        joint_ids = self.encode(stem + answer)
        border = _common_prefix(self.encode(stem), joint_ids) if stem else 0
        before, after = joint_ids[:border], joint_ids[border:]
        uncut = self._start() + before
        if len(after) > self.max_length:
            head = self._cut(before, 1)
            windows = tuple(rolling_windows(head, after, self.max_length))
            return FramedAnswer(windows, context_cut=len(head) < len(uncut), answer_windowed=len(windows) > 1)
        head = self._cut(before, self.max_length - len(after) + 1)
        request = ScoreRequest((*head, *after), len(after))
        return FramedAnswer((request,), context_cut=len(head) < len(uncut), answer_windowed=False)

    def document(self, text: str) -> list[ScoreRequest]:
        """Windows that score every token of a text once; the model's reach is the only limit to their context.

        The windows follow training's packing: a document which does not fit goes on in the next sequence without a
        second BOS, after the last token of the window before.
        """
        return list(rolling_windows(self._start(), self.encode(text), self.max_length))

    def prompt(self, text: str, new_tokens: int) -> tuple[list[int], bool]:
        """Ids to continue by `new_tokens`, and whether their left side had to go."""
        ids = self.encode(text)
        head = self._cut(ids, max(1, self.max_length - new_tokens))
        return head, len(head) < len(self._start() + ids)

    def _start(self) -> list[int]:
        return [] if self.framing.bos_id is None else [self.framing.bos_id]

    def _cut(self, ids: list[int], room: int) -> list[int]:
        """The start of a document and as much of the end of `ids` as fits into `room`."""
        start = self._start()
        kept = min(len(ids), room - len(start))
        return start + ids[len(ids) - kept :]


def rolling_windows(head: Sequence[int], ids: Sequence[int], max_length: int) -> Iterator[ScoreRequest]:
    """Divide `ids` into requests of at most `max_length` inputs which score each token exactly once.

    The first window follows `head` (one id at most); a later one follows the last token of the window before it,
    and is filled up with earlier context where it has room.
    """
    stream = [*head, *ids]
    done = len(head)
    while done < len(stream):
        # The model reads all but the last id of a window, so a window holds one id more than the positions.
        end = min(len(stream), max(done, 1) + max_length)
        start = max(0, end - max_length - 1)
        yield ScoreRequest(tuple(stream[start:end]), end - done)
        done = end


def _common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    count = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        count += 1
    return count


def _probe(codec: TextCodec) -> tuple[int, Framing]:
    """How many ids `encode` puts before a text, and what training put around a document."""
    text = "a"
    added = len(codec.encode(""))
    inner = codec.encode(text)[added:]
    document = codec.encode_document(text)
    for first in range(len(document) - len(inner) + 1):
        if document[first : first + len(inner)] == inner:
            prefix, suffix = document[:first], document[first + len(inner) :]
            break
    else:
        raise ValueError(f"the tokenizer encodes a document as {document}, which does not hold its text {inner}")
    if len(prefix) > 1 or len(suffix) > 1:
        raise ValueError(
            f"the tokenizer frames a document with {prefix} and {suffix}; evaluation knows one BOS and one EOS at most"
        )
    return added, Framing(prefix[0] if prefix else None, suffix[0] if suffix else None)
