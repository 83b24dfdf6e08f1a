"""Opening the shards of a materialised artifact."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow.parquet as pq

from marin.execution import StepError
from marin.execution.artifact import binding_of
from marin.tokens.shards.artifacts import COUNTS_FILE, TokenShard, TokenShards
from marin.tokens.shards.blocks import CorruptBlock
from marin.tokens.shards.indexed import HEADER, CorruptIndex, IndexedTokens, TokenSource, read_header
from marin.tokens.shards.plans import CorruptPlan, PackingPlan, PlannedSpans
from marin.tokens.shards.streaming import BlockCache, StreamedTokens

MOST_OPEN = 384
"""Shards that are open at once. Each takes two maps with a file handle each, of which a process often has 1024."""

T = TypeVar("T")


class OpenShards:
    """The shards and packing plans that are in use, the least recently used closed beyond a number. Threads share one.

    Args:
        cache: where blocks of shards in an object store are kept; without one such shards are downloaded whole.
        most_open: shards that are open at once, and as many plans.
    """

    def __init__(self, cache: BlockCache | None = None, most_open: int = MOST_OPEN) -> None:
        self.cache = cache
        self._most_open = most_open
        self._sources: OrderedDict[tuple[int, int], TokenSource] = OrderedDict()
        self._plans: OrderedDict[tuple[int, int], PlannedSpans] = OrderedDict()
        self._lock = threading.Lock()

    def source(self, shards: TokenShards, index: int) -> TokenSource:
        """The shard of an index; see :func:`open_shard`."""
        shard = shards.shards[index]
        return self._kept(self._sources, (id(shards), index), lambda: open_shard(shards, shard, self.cache))

    def plan(self, shards: TokenShards, index: int, source: TokenSource) -> PlannedSpans:
        """The packing plan of the shard of an index; see :func:`open_plan`."""
        shard = shards.shards[index]
        return self._kept(self._plans, (id(shards), index), lambda: open_plan(shards, shard, source))

    def _kept(self, kept: OrderedDict[tuple[int, int], T], key: tuple[int, int], opener: Callable[[], T]) -> T:
        with self._lock:
            if key in kept:
                kept.move_to_end(key)
                return kept[key]
        opened = opener()
        with self._lock:
            kept[key] = opened
            while len(kept) > self._most_open:
                kept.popitem(last=False)
        return opened


def open_shard(shards: TokenShards, shard: TokenShard, cache: BlockCache | None = None) -> TokenSource:
    """One shard: memory-mapped where it lies on this machine; otherwise streamed through a cache, or, without one,
    downloaded first.

    Raises:
        StepError: the files are damaged or do not hold what the artifact says.
    """
    binding = binding_of(shards)
    bin_name, idx_name = f"{shard.name}.bin", f"{shard.name}.idx"
    opened: TokenSource
    try:
        sums = shards.read(f"{shard.name}.sums")
        if cache is not None and binding is not None and binding.store.local_path(binding.files[bin_name].key) is None:
            files = shards.file_info(bin_name), shards.file_info(idx_name)
            opened = StreamedTokens(cache, binding.store, *files, sums)
        else:
            opened = IndexedTokens(shards.local(bin_name), shards.local(idx_name), sums)
    except (CorruptIndex, CorruptBlock) as error:
        raise StepError(f"token shard {shard.name} of {shards.selection}: {error}; redo the tokenize step") from error
    if (opened.tokens, opened.documents) != (shard.tokens, shard.documents):
        raise StepError(
            f"token shard {shard.name} of {shards.selection} holds {opened.tokens} tokens of {opened.documents} "
            f"documents, its record says {shard.tokens} of {shard.documents}; redo the tokenize step"
        )
    return opened


def open_plan(shards: TokenShards, shard: TokenShard, source: TokenSource) -> PlannedSpans:
    """The packing plan of one shard, read whole and checked against its documents.

    Raises:
        StepError: the shard has no plan, or one that is damaged or not its own.
    """
    name = f"{shard.name}.plan"
    if shard.packing is None:
        raise StepError(f"token shard {shard.name} of {shards.selection} was written without a packing plan")
    try:
        data = shards.read(name)
        if hashlib.sha256(data).hexdigest() != shards.file_info(name).sha256:
            raise CorruptPlan(f"{name} is not what was written: it was changed or damaged")
        plan = PackingPlan.from_bytes(data, name)
        if plan.sequences != shard.packing.sequences:
            raise CorruptPlan(f"{name} is of {plan.sequences} sequences, its record says {shard.packing.sequences}")
        return PlannedSpans(plan, source.lengths)
    except CorruptPlan as error:
        raise StepError(f"token shard {shard.name} of {shards.selection}: {error}; redo the tokenize step") from error


def recount(shards: TokenShards, shard: TokenShard) -> tuple[int, int]:
    """(tokens, documents) of a shard by its files, from a few bytes of its index and the size of its ids. Checksums and
    packing plan have to be there, with the sizes that their record says.

    Raises:
        StepError: a file is missing, cut, or not of the size that its record says.
    """
    idx_name, bin_name = f"{shard.name}.idx", f"{shard.name}.bin"
    with shards.open(idx_name) as stream:
        try:
            header = read_header(stream.read(HEADER.size), shards.file_info(idx_name).size, idx_name)
        except CorruptIndex as error:
            raise StepError(str(error)) from error
    for name in (f"{shard.name}.sums", *([f"{shard.name}.plan"] if shard.packing is not None else [])):
        shards.open(name).close()
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
