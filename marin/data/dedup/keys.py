"""What is known of documents before their texts are read: hashes that copies share, and which copy is preferred.

Imports numpy and pyarrow; import this module inside step bodies only.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marin.data.dedup.columns import arrow_flags, floats, heads, integers, present, sizes, words_of_64_bits
from marin.data.dedup.config import DedupConfig
from marin.data.dedup.places import Group, Origin, Piece
from marin.data.documents.addresses import canonical_url
from marin.data.documents.attributes import read_attributes
from marin.data.documents.io import read_shard
from marin.execution import StepError

Numbers = NDArray[np.int64]
Hashes = NDArray[np.uint64]

KEPT, EXACT, URL, FUZZY = 0, 1, 2, 3
REASONS: tuple[str | None, ...] = (None, "duplicate_exact", "duplicate_url", "duplicate_fuzzy")
"""Why a document is a copy, by number."""

_KIND_OF = {reason: kind for kind, reason in enumerate(REASONS)}


@dataclass(frozen=True)
class Keys:
    """Of the documents of some shards that can be copies of others, an entry each, ascending by number.

    Attributes:
        numbers: their numbers.
        words: two halves of the hash of their words [documents, 2].
        urls: two halves of the hash of their address [documents, 2]; zeros without one, or when it does not count.
        bands: LSH keys [documents, bands]; without columns when near copies do not count.
    """

    numbers: Numbers
    words: Hashes
    urls: Hashes
    bands: Hashes


@dataclass(frozen=True)
class Order:
    """Which of several documents is preferred, for all documents of some shards: the least stays.

    Attributes:
        levels: what the filters, protected sources and the order of sources say.
        heads: the first 16 bytes of the id, as two numbers [documents, 2].
        sizes: words of the text.
    """

    levels: Numbers
    heads: Hashes
    sizes: Numbers


@dataclass(frozen=True)
class Followers:
    """Documents that are copies of another one of their own source.

    Attributes:
        numbers: their numbers, ascending.
        keepers: numbers of the documents that stand in for them.
        kinds: why, as in `REASONS`.
        shares: share of their n-grams in those; NaN when unknown.
    """

    numbers: Numbers
    keepers: Numbers
    kinds: Numbers
    shares: NDArray[np.float64]


def level(passes: NDArray[np.bool_], source: str, config: DedupConfig) -> Numbers:
    """The preference that does not come from the id: the least is the most preferred."""
    ranks = len(config.priority) + 1
    return np.where(passes, 0, 2 * ranks).astype(np.int64) + ranks + config.rank(source)


def read_keys(group: Group, config: DedupConfig) -> tuple[Keys, Order, Followers]:
    """What is known of the documents of some shards."""
    found = [_read(group.origin_of(piece), piece, config) for piece in group.pieces]
    keys, orders, followers = zip(*found, strict=True)
    widths = {one.bands.shape[1] for one in keys if len(one.numbers)}
    if len(widths) > 1:
        raise StepError(f"signals have {sorted(widths)} LSH bands; annotate all sources with the same MinHash settings")
    width = widths.pop() if widths else 0
    bands = [one.bands if len(one.numbers) else np.zeros((0, width), np.uint64) for one in keys]
    return (
        Keys(
            np.concatenate([one.numbers for one in keys]),
            np.concatenate([one.words for one in keys]),
            np.concatenate([one.urls for one in keys]),
            np.concatenate(bands),
        ),
        Order(
            np.concatenate([one.levels for one in orders]),
            np.concatenate([one.heads for one in orders]),
            np.concatenate([one.sizes for one in orders]),
        ),
        Followers(
            np.concatenate([one.numbers for one in followers]),
            np.concatenate([one.keepers for one in followers]),
            np.concatenate([one.kinds for one in followers]),
            np.concatenate([one.shares for one in followers]),
        ),
    )


def _read(origin: Origin, piece: Piece, config: DedupConfig) -> tuple[Keys, Order, Followers]:
    columns = ["id", "reason", "words", "content", *(["bands"] if config.fuzzy else [])]
    table = read_attributes(origin.signals, origin.pages, piece.shard, columns=columns)
    numbers = piece.start + np.arange(table.num_rows)
    order = Order(
        level(~present(table.column("reason")), piece.shard.source, config),
        heads(table.column("id"), 16).view(">u8").astype(np.uint64),
        integers(table.column("words")),
    )
    takes_part = present(table.column("content"))
    followers = _no_followers()
    if origin.inside is not None:
        verdicts = read_attributes(
            origin.inside, origin.pages, piece.shard, columns=("reason", "duplicate_of_row", "containment")
        )
        removed = present(verdicts.column("reason"))
        followers = _followers(verdicts.filter(arrow_flags(removed)), numbers[removed], piece.origin_start)
        takes_part &= ~removed
    rows = table.filter(arrow_flags(takes_part))
    keys = Keys(
        numbers[takes_part],
        words_of_64_bits(rows.column("content"), 2),
        urls_of(origin, piece)[takes_part].view("<u8").reshape(-1, 2).astype(np.uint64)
        if config.by_url
        else np.zeros((rows.num_rows, 2), np.uint64),
        _bands(rows.column("bands"), piece) if config.fuzzy else np.zeros((rows.num_rows, 0), np.uint64),
    )
    return keys, order, followers


def _no_followers() -> Followers:
    none = np.zeros(0, np.int64)
    return Followers(none, none, none, np.zeros(0))


def _followers(removed: pa.Table, numbers: Numbers, origin_start: int) -> Followers:
    kinds = [_KIND_OF[reason] for reason in removed.column("reason").to_pylist()]
    return Followers(
        numbers,
        origin_start + integers(removed.column("duplicate_of_row")),
        np.array(kinds, np.int64),
        floats(removed.column("containment")),
    )


def _bands(column: pa.ChunkedArray, piece: Piece) -> Hashes:
    widths = np.unique(sizes(column))
    if len(widths) > 1 or (len(widths) and (widths[0] % 8 or not widths[0])):
        raise StepError(f"the LSH bands of {piece.shard.name!r} have {widths.tolist()} bytes; annotate it again")
    return words_of_64_bits(column, int(widths[0]) // 8 if len(widths) else 0)


def contents_of(origin: Origin, piece: Piece) -> NDArray[Any]:
    """The hash of each document's words as bytes, empty without words."""
    table = read_attributes(origin.signals, origin.pages, piece.shard, columns=("content",))
    return np.ascontiguousarray(heads(table.column("content"), 16)).view("S16").reshape(-1)


def urls_of(origin: Origin, piece: Piece) -> NDArray[Any]:
    """The hash of each document's address as bytes, empty without one."""
    column = read_shard(origin.pages, piece.shard, columns=("url",)).column("url")
    return np.array(
        [
            hashlib.blake2b(canonical_url(url).encode("utf-8", "replace"), digest_size=16).digest() if url else b""
            for url in column.to_pylist()
        ],
        "S16",
    )
