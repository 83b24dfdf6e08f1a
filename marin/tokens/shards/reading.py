"""Opening the shards of a materialised artifact."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from marin.execution import StepError
from marin.tokens.shards.artifacts import COUNTS_FILE, TokenShard, TokenShards
from marin.tokens.shards.indexed import HEADER, CorruptIndex, IndexedTokens, TokenSource, read_header
from marin.tokens.shards.plans import CorruptPlan, PackingPlan, PlannedSpans


def open_shard(shards: TokenShards, shard: TokenShard) -> IndexedTokens:
    """One shard, memory-mapped (downloaded first when the store is remote).

    Raises:
        StepError: the files are damaged or do not hold what the artifact says.
    """
    try:
        indexed = IndexedTokens(shards.local(f"{shard.name}.bin"), shards.local(f"{shard.name}.idx"))
    except CorruptIndex as error:
        raise StepError(f"token shard {shard.name} of {shards.selection}: {error}") from error
    if (indexed.tokens, indexed.documents) != (shard.tokens, shard.documents):
        raise StepError(
            f"token shard {shard.name} of {shards.selection} holds {indexed.tokens} tokens of {indexed.documents} "
            f"documents, its record says {shard.tokens} of {shard.documents}; redo the tokenize step"
        )
    return indexed


def open_plan(shards: TokenShards, shard: TokenShard, source: TokenSource) -> PlannedSpans:
    """The packing plan of one shard, read whole and checked against its documents.

    Raises:
        StepError: the shard has no plan, or one that is damaged or not its own.
    """
    name = f"{shard.name}.plan"
    if shard.packing is None:
        raise StepError(f"token shard {shard.name} of {shards.selection} was written without a packing plan")
    try:
        plan = PackingPlan.from_bytes(shards.read(name), name)
        if plan.sequences != shard.packing.sequences:
            raise CorruptPlan(f"{name} is of {plan.sequences} sequences, its record says {shard.packing.sequences}")
        return PlannedSpans(plan, source.lengths)
    except CorruptPlan as error:
        raise StepError(f"token shard {shard.name} of {shards.selection}: {error}; redo the tokenize step") from error


def recount(shards: TokenShards, shard: TokenShard) -> tuple[int, int]:
    """(tokens, documents) of a shard by its files, from a few bytes of its index and the size of its ids.

    Raises:
        StepError: a file is missing, cut, or not of the size that its record says.
    """
    idx_name, bin_name = f"{shard.name}.idx", f"{shard.name}.bin"
    with shards.open(idx_name) as stream:
        try:
            header = read_header(stream.read(HEADER.size), shards.file_info(idx_name).size, idx_name)
        except CorruptIndex as error:
            raise StepError(str(error)) from error
    with shards.open(bin_name):
        size = shards.file_info(bin_name).size
    return size // np.dtype(header.dtype).itemsize, header.entries - 1


def token_counts(shards: TokenShards) -> npt.NDArray[np.int64]:
    """How often each id occurs: int64 of ``vocab_size`` entries."""
    with shards.open(COUNTS_FILE) as stream:
        counts: npt.NDArray[np.int64] = np.load(stream)
    return counts


def document_ids(shards: TokenShards, shard: TokenShard) -> list[str]:
    """Document ids of a shard, by their index in it."""
    with shards.open(f"{shard.name}.documents.parquet") as stream:
        ids: list[str] = pq.read_table(stream, columns=["id"]).column("id").to_pylist()
    return ids
