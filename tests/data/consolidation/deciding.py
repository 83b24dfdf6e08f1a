"""Deciding over made-up documents: with the code, over any number of shards, and by a plain reading of the rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from marin.data.consolidation.config import Policy
from marin.data.consolidation.heirs import heirs_among, partitioned, rows_that_matter
from marin.data.consolidation.judging import IDS
from marin.data.consolidation.settle import Elsewhere, settle
from marin.data.consolidation.verdicts import VERDICTS


@dataclass(frozen=True)
class Doc:
    """A document: why it is dropped for itself, the one that stands in for it, and what else is known."""

    id: str
    reason: str | None = None
    original: str | None = None
    contaminated: bool = False
    taken: str | None = None
    why: str | None = None


Fate = tuple[str | None, str | None]


def table(docs: Sequence[Doc]) -> pa.Table:
    """The verdicts on documents."""
    named = {one.original for one in docs}
    return pa.Table.from_pylist(
        [
            {
                "id": one.id,
                "reason": "takedown" if one.taken else one.reason,
                "why": one.taken or one.why,
                "copy": "duplicate_exact" if one.original else None,
                "duplicate_of": one.original,
                "clustered": one.original is not None or one.id in named,
                "contaminated": one.contaminated,
                "language": "en",
                "score": 0.5,
                "quality": 0,
                "topic": 0,
            }
            for one in docs
        ],
        schema=VERDICTS,
    )


def decided(docs: Sequence[Doc], policy: Policy = Policy(), *, shards: int = 1, partitions: int = 1) -> list[Fate]:
    """Reason and why of each document, decided over shards and partitions."""
    whole = table(docs)
    size = max(1, -(-len(docs) // shards))
    starts = range(0, len(docs), size)
    pieces = [whole.slice(start, size) for start in starts]
    rows: list[list[pa.Table]] = [[] for _ in range(partitions)]
    if policy.drop_duplicates:
        for start, piece in zip(starts, pieces, strict=True):
            for part, chosen in enumerate(partitioned(rows_that_matter(piece, start), partitions)):
                rows[part].append(chosen)
    heirs = sorted(number for part in rows if part for number in heirs_among(pa.concat_tables(part)).tolist())
    gone = [one.original or one.id for one in docs if one.taken] if policy.takedown.copies else []
    elsewhere = Elsewhere(pa.array(heirs, pa.int64()).to_numpy(), pa.array(sorted(set(gone)), IDS.field("id").type))
    found: list[Fate] = []
    for start, piece in zip(starts, pieces, strict=True):
        settled = settle(piece, start, elsewhere, policy)
        found += zip(settled.reasons.to_pylist(), settled.whys.to_pylist(), strict=True)
    return found


def expected(docs: Sequence[Doc], policy: Policy = Policy()) -> list[Fate]:
    """The same by a plain reading of the rules."""
    own: list[str | None] = []
    for one in docs:
        family = [other for other in docs if (other.original or other.id) == (one.original or one.id)]
        falls = one.taken or (policy.takedown.copies and any(other.taken for other in family))
        own.append("takedown" if falls else one.reason)
    found: list[Fate] = []
    for at, one in enumerate(docs):
        reason: str | None
        reason, why = own[at], one.taken or one.why
        if reason == "takedown":
            why = one.taken or f"a copy among those of {one.original or one.id}"
        if reason is None and one.original and policy.drop_duplicates:
            stands = any(other.id == one.original and own[place] is None for place, other in enumerate(docs))
            heirs = [
                (other.id, place)
                for place, other in enumerate(docs)
                if other.original == one.original and own[place] is None
            ]
            if stands or min(heirs) != (one.id, at):
                reason, why = "duplicate_exact", one.original
        if reason is None and policy.drop_contaminated and one.contaminated:
            reason = "contaminated"
        found.append((reason, why))
    return found
