"""What a document is, and how its id is made."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marin.data.documents.normalise import normalise_text

COLUMNS = ("id", "text", "text_hash", "source", "url", "language", "metadata")
"""Columns of every document shard, in order."""

CONSOLIDATED_COLUMNS = (*COLUMNS, "split", "quality", "topic")
"""Columns of a shard of consolidated documents."""

FATES = "fates/"
"""Folder of the files beside consolidated documents that say what became of each document that came in."""

_INT64 = 2**63
_DEEPEST = 64
"""Levels of nesting in metadata; a few hundred would end the step in a `RecursionError`."""


@dataclass(frozen=True, slots=True)
class Document:
    """One document. ``text`` is in stored form; ``metadata`` is canonical JSON text of one object."""

    id: str
    text: str
    text_hash: str
    source: str
    url: str | None = None
    language: str | None = None
    metadata: str = "{}"
    split: str = ""
    quality: int = -1
    topic: int = -1


def make_document(
    text: str,
    *,
    source: str,
    url: str | None = None,
    position: str | None = None,
    language: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Document:
    """A document from any text: the text is normalised first, so that ids and hashes see the stored form only.

    Args:
        text: any text; see :mod:`marin.data.documents.normalise` for what happens to it.
        source: name of the source, part of the id.
        url: where the document was found; part of the id when given.
        position: a stable place (such as ``books.jsonl:17``) that stands in for the url when there is none.
        language: language code, when known.
        metadata: JSON-like values; what JSON cannot hold exactly is kept as text.

    Raises:
        ValueError: neither url nor position is given.
    """
    place = url if url is not None else position
    if place is None:
        raise ValueError(f"a document of source {source!r} has neither url nor position; give one, ids are made of it")
    stored = normalise_text(text)
    return Document(
        id=document_id(source, place, stored),
        text=stored,
        text_hash=text_hash(stored),
        source=source,
        url=None if url is None else normalise_text(url),
        language=language,
        metadata=encode_metadata(metadata or {}),
    )


def document_id(source: str, place: str, text: str) -> str:
    """128-bit hex id of (source, url or position, text), the same on any machine and for any sharding.

    Each part is preceded by its length, so no two different triples are hashed as the same bytes.
    """
    digest = hashlib.blake2b(digest_size=16, person=b"marin.document")
    for part in (source, place, text):
        data = part.encode("utf-8", "replace")
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()


def text_hash(text: str) -> str:
    """128-bit hex hash of a text in stored form: equal exactly for exact copies."""
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16, person=b"marin.text").hexdigest()


def encode_metadata(metadata: Mapping[str, Any]) -> str:
    """Canonical JSON text of a metadata object.

    NaN, infinities and integers beyond 64 bit are kept as text; what is nested more than ``_DEEPEST`` levels down is
    left out, with a mark in its place.
    """
    return json.dumps(_plain(metadata, 0), sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _plain(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return normalise_text(value)
    if isinstance(value, int):
        return value if -_INT64 <= value < _INT64 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (Mapping, list, tuple)) and depth == _DEEPEST:
        return "…"
    if isinstance(value, Mapping):
        return {normalise_text(str(key)): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, depth + 1) for item in value]
    return normalise_text(str(value))
