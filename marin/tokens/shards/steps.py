"""The step that turns documents into token shards."""

from __future__ import annotations

from marin.data.documents.artifacts import Documents
from marin.execution import Flow, StepError, current_run, step
from marin.tokens.shards.artifacts import COUNTS_FILE, TokenShard, TokenShards
from marin.tokens.shards.config import PackingConfig, Selection, TokenizeConfig
from marin.tokens.tokenizer.artifacts import Tokenizer


@step("tokens/shards", version="2", fans_out=True, cutoff=True)
def tokenize(
    clean: Documents,
    tokenizer: Tokenizer,
    select: Selection = Selection(),
    config: TokenizeConfig = TokenizeConfig(),
) -> TokenShards:
    """Encode the selected documents into Megatron-compatible shards, in parallel.

    A document becomes its edge tokens around the ids of its text, whole whatever its length. Documents without text
    are dropped and counted. Held-out documents stay as they come, and need no packing plan. A selection without
    documents gives an artifact without shards; it is the mixture that refuses such a cell.

    Raises:
        StepError: the documents are not consolidated, a shard does not hold what its record says, or a document lacks
            the figure that they are to be ordered by.
    """
    import io

    import numpy as np

    from marin.tokens.shards.encode import Bundle, EncodedBundle, bundle_shards, encode_bundle, unpack_counts
    from marin.tokens.shards.indexed import dtype_for

    run = current_run()
    if any(not shard.split for shard in clean.shards):
        raise StepError("these documents have no train / validation split yet; tokenize what consolidate gives")
    selected = clean.select(split=select.split, source=select.source, quality=select.quality, topic=select.topic)
    training = select.split == "train"
    packing = config.packing if training else PackingConfig()
    order_by = config.order_by if training else "stored"
    bundles = [
        Bundle(f"{index:05d}", clean, shards, tokenizer, packing, order_by, config.batch_bytes)
        for index, shards in enumerate(bundle_shards(selected, config.shard_bytes))
    ]
    encoded: list[EncodedBundle] = run.map(encode_bundle, bundles)
    kept = [bundle for bundle in encoded if bundle.documents]
    counts = np.zeros(tokenizer.vocab_size, dtype=np.int64)
    for bundle in encoded:
        counts += unpack_counts(bundle.counts)
    tokens = sum(bundle.tokens for bundle in encoded)
    if int(counts.sum()) != tokens:
        raise StepError(f"the counts by id add up to {int(counts.sum())} tokens, the shards to {tokens}")
    buffer = io.BytesIO()
    np.save(buffer, counts)
    run.write_bytes(COUNTS_FILE, buffer.getvalue())
    documents = sum(bundle.documents for bundle in encoded)
    run.account(
        Flow(
            unit="documents",
            read=sum(shard.rows for shard in selected),
            kept=documents,
            dropped={"empty": sum(bundle.empty for bundle in encoded)},
        )
    )
    return TokenShards(
        selection=select,
        shards=tuple(
            TokenShard(item.name, item.tokens, item.documents, item.text_bytes, item.packing) for item in kept
        ),
        tokens=tokens,
        documents=documents,
        text_bytes=sum(item.text_bytes for item in encoded),
        dtype=dtype_for(tokenizer.vocab_size),
        vocab_size=tokenizer.vocab_size,
        bos_id=tokenizer.bos_id if tokenizer.add_bos else None,
        eos_id=tokenizer.eos_id if tokenizer.add_eos else None,
        pad_id=tokenizer.pad_id,
        tokenizer_sha256=tokenizer.sha256,
        packing=packing,
        order_by=order_by,
    )
