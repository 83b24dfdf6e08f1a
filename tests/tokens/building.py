"""Small documents, tokenizers and token shards for tests, made by real steps in this process."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from marin.data.documents.artifacts import Documents
from marin.data.documents.io import DocumentWriter, documents_of
from marin.data.documents.schema import Document, make_document
from marin.execution import current_run, materialise, step
from marin.tokens.shards.artifacts import COUNTS_FILE, ShardPacking, TokenShard, TokenShards
from marin.tokens.shards.blocks import encode_checksums
from marin.tokens.shards.config import PackingConfig, Selection
from marin.tokens.shards.indexed import TokenWriter, dtype_for
from marin.tokens.shards.plans import plan_packing
from marin.tokens.tokenizer.config import SpecialTokens, TokenizerConfig

TEXT = (
    "the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which "
    "one you were all her she there would their we him been has when who will no more if out so up said what its about "
    "than into them can only other time new some could these two may first then do any like my now over such our man "
    "me even most made after also did many before must through back years where much your way well down should because"
)
WORDS = tuple(TEXT.split())

SMALL_TOKENIZER = TokenizerConfig(vocab_size=400, pad_to_multiple=16, special=SpecialTokens(reserved=2))


def prose(seed: int, words: int) -> str:
    """English words in a fixed random order, with punctuation."""
    generator = np.random.default_rng(seed)
    chosen = [WORDS[index] for index in generator.zipf(1.3, words) % len(WORDS)]
    for index in range(9, words, 10):
        chosen[index] += ".\n" if index % 50 == 49 else ","
    return " ".join(chosen)


@step("tests/documents", version="1", inline=True)
def written_documents(rows: tuple[tuple[str, str, int, str], ...], shard_bytes: int) -> Documents:
    """Documents of (source, split, quality, text), in one writer for each (source, split, quality).

    Ids follow from source and text, so they do not depend on the order of the rows.
    """
    groups: dict[tuple[str, str, int], list[str]] = {}
    for source, split, quality, text in rows:
        groups.setdefault((source, split, quality), []).append(text)
    shards = []
    for (source, split, quality), texts in groups.items():
        stem = f"{source}-{split}-{quality}"
        with DocumentWriter(
            current_run().write,
            stem,
            source=source,
            split=split,
            quality=quality,
            consolidated=bool(split),
            shard_bytes=shard_bytes,
            row_group_bytes=shard_bytes,
        ) as writer:
            seen: Counter[str] = Counter()
            for text in texts:
                made = make_document(text, source=source, position=f"{text}:{seen[text]}")
                seen[text] += 1
                writer.write(Document(made.id, text, made.text_hash, source))
        shards += writer.shards
    return documents_of(None, shards)


@step("tests/shards", version="2", inline=True)
def written_shards(
    documents: tuple[tuple[int, ...], ...],
    per_shard: int,
    vocab_size: int,
    name: str,
    packing: PackingConfig = PackingConfig(),
    order_by: str = "stored",
) -> TokenShards:
    """Token shards of documents given as ids, ``per_shard`` documents to a file; id 0 pads."""
    run = current_run()
    shards = []
    counts = np.zeros(vocab_size, dtype=np.int64)
    for first in range(0, len(documents), per_shard):
        part = documents[first : first + per_shard]
        stem = f"{len(shards):05d}"
        with run.write(f"{stem}.bin") as stream:
            writer = TokenWriter(stream, dtype_for(vocab_size), vocab_size)
            writer.add([token for document in part for token in document], [len(document) for document in part])
        index = writer.index.to_bytes()
        run.write_bytes(f"{stem}.idx", index)
        run.write_bytes(f"{stem}.sums", encode_checksums(writer.checksums, index))
        with run.write(f"{stem}.documents.parquet") as stream:
            ids = [f"{name}-{first + place}" for place in range(len(part))]
            pq.write_table(pa.table({"id": ids, "tokens": writer.index.lengths}), stream)
        planned = None
        if packing.sequence_length is not None:
            plan, losses = plan_packing(writer.index.lengths, packing.policy, packing.sequence_length)
            run.write_bytes(f"{stem}.plan", plan.to_bytes())
            planned = ShardPacking(plan.sequences, losses.dropped_tokens, losses.padded_places, len(plan.to_bytes()))
        counts += writer.counts
        shards.append(TokenShard(stem, writer.tokens, len(part), writer.tokens, planned))
    buffer = io.BytesIO()
    np.save(buffer, counts)
    run.write_bytes(COUNTS_FILE, buffer.getvalue())
    return TokenShards(
        selection=Selection(source=name),
        shards=tuple(shards),
        tokens=int(counts.sum()),
        documents=len(documents),
        text_bytes=int(counts.sum()),
        dtype=dtype_for(vocab_size),
        vocab_size=vocab_size,
        bos_id=None,
        eos_id=None,
        pad_id=0,
        tokenizer_sha256="0" * 64,
        packing=packing,
        order_by=order_by,
    )


def make_documents(prefix: Path, rows: list[tuple[str, str, int, str]], shard_bytes: int = 1 << 20) -> Documents:
    """Materialised documents."""
    return materialise(written_documents(tuple(rows), shard_bytes), prefix=str(prefix))


def make_shards(
    prefix: Path,
    documents: list[list[int]],
    *,
    per_shard: int = 1000,
    vocab_size: int = 4096,
    name: str = "cell",
    packing: PackingConfig = PackingConfig(),
) -> TokenShards:
    """Materialised token shards."""
    handle = written_shards(tuple(tuple(document) for document in documents), per_shard, vocab_size, name, packing)
    return materialise(handle, prefix=str(prefix))
