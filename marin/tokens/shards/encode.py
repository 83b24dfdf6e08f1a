"""Encoding one bundle of document shards into one token shard."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from marin.data.documents.artifacts import Documents, DocumentShard
from marin.data.documents.io import iterate_batches
from marin.execution import StepError, current_run
from marin.tokens.shards.artifacts import ShardPacking
from marin.tokens.shards.blocks import encode_checksums
from marin.tokens.shards.config import PackingConfig
from marin.tokens.shards.document_order import DocumentOrder
from marin.tokens.shards.indexed import TokenWriter, dtype_for
from marin.tokens.shards.plans import plan_packing
from marin.tokens.tokenizer.artifacts import Tokenizer
from marin.tokens.tokenizer.codec import TextCodec, load_codec

DOCUMENTS_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("tokens", pa.int32(), nullable=False),
        pa.field("difficulty", pa.float64()),
    ]
)

ROW_GROUP_DOCUMENTS = 1 << 17


@dataclass(frozen=True)
class Bundle:
    """Work for one worker: document shards that become the token shard ``name``."""

    name: str
    clean: Documents
    shards: tuple[DocumentShard, ...]
    tokenizer: Tokenizer
    packing: PackingConfig
    order_by: str
    batch_bytes: int


@dataclass(frozen=True)
class EncodedBundle:
    """What came of a bundle. ``counts`` holds packed id counts (see :func:`unpack_counts`).

    Every document read is written or among ``empty``; every token is in ``tokens``.
    """

    name: str
    read: int
    empty: int
    documents: int
    tokens: int
    text_bytes: int
    counts: str
    packing: ShardPacking | None


def bundle_shards(shards: Iterable[DocumentShard], shard_bytes: int) -> list[tuple[DocumentShard, ...]]:
    """Document shards in groups of up to ``shard_bytes`` of text, in order; a larger shard is a group of its own."""
    groups: list[tuple[DocumentShard, ...]] = []
    group: list[DocumentShard] = []
    size = 0
    for shard in shards:
        if group and size + shard.text_bytes > shard_bytes:
            groups.append(tuple(group))
            group, size = [], 0
        group.append(shard)
        size += shard.text_bytes
    return [*groups, tuple(group)] if group else groups


def encode_bundle(bundle: Bundle) -> EncodedBundle:
    """Write the token shard of a bundle; runs in a worker.

    Raises:
        StepError: a document shard does not hold the rows that its record says, or a document lacks the figure that
            they are to be ordered by.
    """
    run = current_run()
    codec = load_codec(bundle.tokenizer)
    vocab_size = bundle.tokenizer.vocab_size
    read = empty = text_bytes = 0
    with run.write(f"{bundle.name}.bin") as stream:
        tokens = TokenWriter(stream, dtype_for(vocab_size), vocab_size)
        ordered = DocumentOrder(tokens, bundle.order_by)
        for shard in bundle.shards:
            before = read
            for ids, texts, metadata in read_batches(bundle.clean, shard, bundle.batch_bytes, ordered.columns):
                read += len(texts)
                kept = [index for index, text in enumerate(texts) if text]
                empty += len(texts) - len(kept)
                flat, lengths = frame_documents(codec, [texts[index] for index in kept])
                sizes = [len(texts[index].encode("utf-8", "replace")) for index in kept]
                ordered.add([ids[index] for index in kept], flat, lengths, sizes, [metadata[index] for index in kept])
                text_bytes += sum(sizes)
            if read - before != shard.rows:
                raise StepError(
                    f"document shard {shard.name} holds {read - before} rows, its record says {shard.rows}; "
                    "redo the step that made the documents"
                )
        ordered.finish()
    with run.write(f"{bundle.name}.documents.parquet") as provenance:
        columns = {"id": ordered.ids, "tokens": tokens.index.lengths, "difficulty": ordered.difficulties}
        table = pa.table(columns, schema=DOCUMENTS_SCHEMA)
        pq.write_table(table, provenance, compression="zstd", row_group_size=ROW_GROUP_DOCUMENTS)
    index = tokens.index.to_bytes()
    run.write_bytes(f"{bundle.name}.idx", index)
    run.write_bytes(f"{bundle.name}.sums", encode_checksums(tokens.checksums, index))
    return EncodedBundle(
        name=bundle.name,
        read=read,
        empty=empty,
        documents=read - empty,
        tokens=tokens.tokens,
        text_bytes=text_bytes,
        counts=pack_counts(tokens.counts),
        packing=_write_plan(bundle, tokens.index.lengths),
    )


def _write_plan(bundle: Bundle, lengths: npt.NDArray[np.int64]) -> ShardPacking | None:
    if bundle.packing.sequence_length is None:
        return None
    plan, losses = plan_packing(lengths, bundle.packing.policy, bundle.packing.sequence_length)
    data = plan.to_bytes()
    current_run().write_bytes(f"{bundle.name}.plan", data)
    return ShardPacking(plan.sequences, losses.dropped_tokens, losses.padded_places, len(data))


def read_batches(
    clean: Documents, shard: DocumentShard, batch_bytes: int, columns: tuple[str, ...] = ()
) -> Iterator[tuple[list[str], list[str], list[str]]]:
    """(ids, texts, metadata) of a shard in stored order, in batches of about ``batch_bytes`` characters.

    Metadata is read only where ``columns`` has it; otherwise it is empty text.
    """
    ids: list[str] = []
    texts: list[str] = []
    metadata: list[str] = []
    size = 0
    for batch in iterate_batches(clean, shard, columns=("id", "text", *columns)):
        of_batch = batch["metadata"].to_pylist() if "metadata" in columns else [""] * batch.num_rows
        for document_id, text, found in zip(batch["id"].to_pylist(), batch["text"].to_pylist(), of_batch, strict=True):
            ids.append(document_id)
            texts.append(text)
            metadata.append(found)
            size += len(text)
            if size >= batch_bytes:
                yield ids, texts, metadata
                ids, texts, metadata, size = [], [], [], 0
    if ids:
        yield ids, texts, metadata


def frame_documents(codec: TextCodec, texts: list[str]) -> tuple[list[int], list[int]]:
    """Ids of documents with their edge tokens, back to back, and the length of each."""
    before = [] if codec.bos_id is None else [codec.bos_id]
    after = [] if codec.eos_id is None else [codec.eos_id]
    flat: list[int] = []
    lengths: list[int] = []
    for ids in codec.encode_batch(texts):
        flat += before
        flat += ids
        flat += after
        lengths.append(len(before) + len(ids) + len(after))
    return flat, lengths


def pack_counts(counts: npt.NDArray[np.int64]) -> str:
    """Counts by id as text that a record can hold."""
    return base64.b64encode(zlib.compress(counts.astype("<i8").tobytes())).decode("ascii")


def unpack_counts(packed: str) -> npt.NDArray[np.int64]:
    """Counts by id from :func:`pack_counts`."""
    return np.frombuffer(zlib.decompress(base64.b64decode(packed)), dtype="<i8").astype(np.int64)
