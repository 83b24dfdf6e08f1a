"""The held-out documents that evaluation items are made from: a bounded number of each source, by a hash of their ids.

Imports pyarrow and numpy; import this module inside step bodies only.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marin.data.documents.artifacts import Attributes, Documents, DocumentShard
from marin.data.documents.attributes import read_attributes
from marin.data.documents.io import iterate_batches
from marin.data.documents.split import split_of
from marin.data.evalsets.config import EvalSetConfig
from marin.data.evalsets.continuations import Continuation, continuations
from marin.data.filtering.pii import treat
from marin.execution import Flow, Intermediate, current_run, derive_seed


@dataclass(frozen=True)
class HeldOutDocument:
    """What items can be made of, of a document that never trains.

    Attributes:
        id: its id.
        source: its source.
        continuations: passages with the sentences that follow them.
        opening: its beginning, as long as the perplexity task takes it.
    """

    id: str
    source: str
    continuations: tuple[Continuation, ...]
    opening: str


@dataclass(frozen=True)
class FindTask:
    """One shard of documents with what is known of them."""

    pages: Documents
    shard: DocumentShard
    signals: Attributes
    duplicates: Attributes
    config: EvalSetConfig


@dataclass(frozen=True)
class ReadTask:
    """The chosen rows of one shard, ascending."""

    pages: Documents
    shard: DocumentShard
    rows: tuple[int, ...]
    config: EvalSetConfig


def find_held_out(task: FindTask) -> Intermediate:
    """The held-out documents of a shard that pass the filters and are no copies: those of the least hashes.

    Leaves an array of hashes above an array of rows, no more than ``pool_documents``.
    """
    run = current_run()
    config = task.config
    judged = read_attributes(task.signals, task.pages, task.shard, columns=("id", "reason")).to_pydict()
    copies = read_attributes(task.duplicates, task.pages, task.shard, columns=("reason",)).column("reason").to_pylist()
    dropped = {"trains": 0, "filtered": 0, "duplicate": 0}
    hashes: list[int] = []
    rows: list[int] = []
    for row, (document_id, reason, copy) in enumerate(zip(judged["id"], judged["reason"], copies, strict=True)):
        if split_of(document_id, config.validation_share) != "validation":
            dropped["trains"] += 1
        elif reason is not None:
            dropped["filtered"] += 1
        elif copy is not None:
            dropped["duplicate"] += 1
        else:
            hashes.append(_order(document_id, config))
            rows.append(row)
    kept = len(rows)
    read = task.shard.rows
    run.account(Flow(unit="documents", read=read, kept=kept, dropped={name: n for name, n in dropped.items() if n}))
    found = np.array([hashes, rows], np.uint64)
    found = found[:, np.argsort(found[0], kind="stable")][:, : config.pool_documents]
    return run.store_intermediate("held_out.bin", found.tobytes())


def _order(document_id: str, config: EvalSetConfig) -> int:
    """Where a document stands among those of its source."""
    seed = derive_seed(config.seed, f"{config.name}/pool").to_bytes(8, "big")
    return int.from_bytes(hashlib.blake2b(document_id.encode(), digest_size=8, key=seed).digest(), "big")


def choose_held_out(sources: Sequence[str], found: Sequence[Intermediate], most: int) -> list[tuple[int, ...]]:
    """The rows that are taken of each shard: so many documents of each source as have the least hashes.

    Memory: 24 bytes for each chosen document and each of one shard.
    """
    run = current_run()
    best: dict[str, NDArray[np.uint64]] = {}
    for number, (source, file) in enumerate(zip(sources, found, strict=True)):
        own = np.frombuffer(run.load_intermediate(file), np.uint64).reshape(2, -1)
        numbered = np.vstack([own, np.full(own.shape[1], number, np.uint64)])
        both = np.hstack([best[source], numbered]) if source in best else numbered
        order = np.argsort(both[0], kind="stable")
        if len(order) > most:
            # All that are level with the last one stay, so that the order of shards decides nothing.
            order = order[both[0][order] <= both[0][order[most - 1]]]
        best[source] = both[:, order]
    rows: list[list[int]] = [[] for _ in found]
    for chosen in best.values():
        for _, row, number in chosen.T.tolist():
            rows[number].append(row)
    return [tuple(sorted(own)) for own in rows]


def read_held_out(task: ReadTask) -> Intermediate:
    """What items can be made of, of the chosen documents of a shard.

    Personal data is dealt with as in documents that train.
    """
    config = task.config
    wanted = set(task.rows)
    lines: list[str] = []
    row = 0
    for batch in iterate_batches(task.pages, task.shard, columns=("id", "text")):
        for document_id, value in zip(batch.column("id"), batch.column("text"), strict=True):
            if row in wanted:
                name = document_id.as_py()
                text = treat(value.as_py(), config.personal).text
                items = continuations(name, task.shard.source, text, config)
                opening = _cut(text, config.rolling_characters)
                document = HeldOutDocument(name, task.shard.source, tuple(items), opening)
                lines.append(json.dumps(dataclasses.asdict(document), ensure_ascii=False))
            row += 1
    return current_run().store_intermediate("documents.jsonl", "\n".join(lines).encode("utf-8", "replace"))


def held_out_documents(file: Intermediate) -> Iterator[HeldOutDocument]:
    """The documents that `read_held_out` left."""
    for line in current_run().load_intermediate(file).decode().split("\n"):
        row = json.loads(line)
        items = tuple(Continuation(**item) for item in row["continuations"])
        yield HeldOutDocument(row["id"], row["source"], items, row["opening"])


def _cut(text: str, limit: int) -> str:
    """The first characters of a text, up to the last line break in the second half of them, or else the last space."""
    if len(text) <= limit:
        return text
    part = text[:limit]
    for sign in ("\n", " "):
        if part.rfind(sign) > limit // 2:
            return part[: part.rfind(sign)]
    return part
