"""The final reason of each document of a shard, from the verdicts on it and what became of documents elsewhere.

Imports pyarrow and numpy; import this module inside step bodies only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from marin.data.consolidation.config import Policy
from marin.data.consolidation.decide import CONTAMINATED, TAKEDOWN
from marin.data.consolidation.heirs import unpack_numbers
from marin.data.consolidation.verdicts import unpack
from marin.execution import Intermediate, current_run

_NULL = pa.scalar(None, pa.string())


@dataclass(frozen=True)
class Elsewhere:
    """What matters of other shards.

    Attributes:
        heirs: numbers of the documents that take the place of one that stood in for them, ascending.
        gone: ids of the documents that stand in for one that was taken down, or are one; its copies go too.
    """

    heirs: NDArray[np.int64]
    gone: pa.Array


NOTHING_ELSEWHERE = Elsewhere(np.zeros(0, np.int64), pa.array([], pa.string()))


def load_elsewhere(heirs: Intermediate | None, gone: Intermediate | None) -> Elsewhere:
    """What matters of other shards, from the files of heirs and of ids whose copies are taken down."""
    run = current_run()
    return Elsewhere(
        NOTHING_ELSEWHERE.heirs if heirs is None else unpack_numbers(run.load_intermediate(heirs)),
        NOTHING_ELSEWHERE.gone if gone is None else unpack(run.load_intermediate(gone)).column("id").combine_chunks(),
    )


@dataclass(frozen=True)
class Settled:
    """For each document the reason it is dropped for, or null, and what more there is to say of it, or null."""

    reasons: pa.Array
    whys: pa.Array


def settle(verdicts: pa.Table, start: int, elsewhere: Elsewhere, policy: Policy) -> Settled:
    """Settle a shard.

    Args:
        verdicts: the verdicts on its documents.
        start: number of its first document among all.
        elsewhere: what matters of others.
        policy: the policy.
    """
    reasons, whys = _column(verdicts, "reason"), _column(verdicts, "why")
    originals = _column(verdicts, "duplicate_of")
    stands_in = pc.coalesce(originals, _column(verdicts, "id"))
    if len(elsewhere.gone):
        taken = pc.is_in(stands_in, value_set=elsewhere.gone)
        among = pc.binary_join_element_wise("a copy among those of ", stands_in, "")
        named = pc.fill_null(pc.equal(reasons, TAKEDOWN), False)
        whys = pc.if_else(pc.and_(taken, pc.invert(named)), among, whys)
        reasons = pc.if_else(taken, TAKEDOWN, reasons)
    own = reasons
    if policy.drop_duplicates:
        standing = np.zeros(verdicts.num_rows, bool)
        low, high = np.searchsorted(elsewhere.heirs, [start, start + verdicts.num_rows])
        standing[elsewhere.heirs[low:high] - start] = True
        copies = pc.if_else(pa.array(standing), _NULL, _column(verdicts, "copy"))
        whys = pc.if_else(pc.and_(pc.is_null(own), pc.is_valid(copies)), originals, whys)
        reasons = pc.coalesce(reasons, copies)
    if policy.drop_contaminated:
        reasons = pc.coalesce(reasons, pc.if_else(_column(verdicts, "contaminated"), CONTAMINATED, _NULL))
    return Settled(reasons, whys)


def _column(table: pa.Table, name: str) -> pa.Array:
    return table.column(name).combine_chunks()
