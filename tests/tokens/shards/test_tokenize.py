from __future__ import annotations

import zlib

import numpy as np
import pytest

from marin.data.documents.artifacts import Documents
from marin.data.documents.io import iterate_documents
from marin.execution import StepError, materialise
from marin.tokens.shards.blocks import BLOCK_BYTES, decode_checksums
from marin.tokens.shards.config import PackingConfig, Selection, TokenizeConfig
from marin.tokens.shards.encode import bundle_shards, pack_counts, unpack_counts
from marin.tokens.shards.plans import plan_packing
from marin.tokens.shards.reading import document_ids, open_shard, token_counts
from marin.tokens.shards.steps import tokenize
from marin.tokens.tokenizer.artifacts import Tokenizer
from marin.tokens.tokenizer.codec import load_codec
from marin.tokens.tokenizer.steps import train_tokenizer
from tests.tokens.building import SMALL_TOKENIZER, written_documents
from tests.tokens.conftest import CORPUS

HANDLE = train_tokenizer(CORPUS, SMALL_TOKENIZER)


def run(prefix, select=Selection(), config=TokenizeConfig(shard_bytes=10_000)):
    return materialise(tokenize(CORPUS, HANDLE, select, config), prefix=str(prefix))


@pytest.mark.parametrize(
    "select",
    [
        Selection(),
        Selection("validation"),
        Selection(source="web"),
        Selection(source="docs", quality=1),
        Selection(quality=2),
    ],
    ids=str,
)
def test_shards_hold_each_selected_document_once_with_its_id(
    tokens_prefix, corpus: Documents, tokenizer: Tokenizer, select: Selection
):
    shards = run(tokens_prefix, select)
    codec = load_codec(tokenizer)
    expected = {
        document.id: document.text
        for document in iterate_documents(corpus)
        if document.split == select.split
        and select.source in (None, document.source)
        and select.quality in (None, document.quality)
        and document.text
    }
    found = {}
    for shard in shards.shards:
        indexed = open_shard(shards, shard)
        ids = document_ids(shards, shard)
        assert len(ids) == indexed.documents == shard.documents
        for index, document_id in enumerate(ids):
            tokens = indexed.document(index).tolist()
            assert tokens[0] == tokenizer.bos_id
            assert tokens[-1] == tokenizer.eos_id
            assert not codec.special_ids.intersection(tokens[1:-1])
            found[document_id] = codec.decode(tokens[1:-1])
    assert found == expected
    assert shards.documents == len(expected) > 0
    assert shards.text_bytes == sum(len(text.encode()) for text in expected.values())


def test_counts_are_those_of_the_tokens_in_the_files(tokens_prefix, tokenizer: Tokenizer):
    shards = run(tokens_prefix)
    assert len(shards.shards) > 2
    assert shards.dtype == "uint16"
    everything = np.concatenate([open_shard(shards, shard).ids for shard in shards.shards])
    assert np.array_equal(token_counts(shards), np.bincount(everything, minlength=tokenizer.vocab_size))
    assert shards.tokens == everything.size == sum(shard.tokens for shard in shards.shards)


def test_the_stream_does_not_depend_on_the_batch_size(tokens_prefix):
    whole = run(tokens_prefix)
    one_by_one = run(tokens_prefix / "other", config=TokenizeConfig(shard_bytes=10_000, batch_bytes=1))
    assert [whole.file_info(name).sha256 for name in whole.names()] == [
        one_by_one.file_info(name).sha256 for name in one_by_one.names()
    ]
    assert whole.identity == one_by_one.identity


def test_a_selection_without_documents_is_an_artifact_without_shards(tokens_prefix):
    shards = run(tokens_prefix, Selection(source="nowhere"))
    assert (shards.shards, shards.tokens, shards.documents, shards.text_bytes) == ((), 0, 0, 0)
    assert token_counts(shards).sum() == 0


def test_empty_documents_are_dropped_and_counted(tokens_prefix, corpus: Documents):
    selected = corpus.select(split="train", source="web", quality=0)
    shards = run(tokens_prefix, Selection(source="web", quality=0))
    assert shards.documents == sum(shard.rows for shard in selected) - 1
    (flow,) = [flow for flow in shards._bound().record.flows if flow.unit == "documents"]
    assert (flow.read - flow.kept, flow.dropped) == (1, {"empty": 1})


def test_documents_without_a_split_are_refused(tokens_prefix):
    raw = written_documents((("docs", "", -1, "not consolidated yet"),), 1000)
    with pytest.raises(StepError, match="tokenize what consolidate gives"):
        materialise(tokenize(raw, HANDLE), prefix=str(tokens_prefix))


def test_bundles_are_filled_by_bytes_in_order(corpus: Documents):
    groups = bundle_shards(corpus.shards, 30_000)
    assert [shard for group in groups for shard in group] == list(corpus.shards)
    assert all(len(group) == 1 or sum(shard.text_bytes for shard in group) <= 30_000 for group in groups)
    assert [len(group) for group in bundle_shards(corpus.shards, 1)] == [1] * len(corpus.shards)
    assert bundle_shards([], 1) == []


def test_packed_counts_unpack_to_the_same():
    counts = np.random.default_rng(0).integers(0, 2**40, 1000)
    assert np.array_equal(unpack_counts(pack_counts(counts)), counts)


def test_an_unknown_split_is_refused():
    with pytest.raises(ValueError, match="'test'; use 'train' or 'validation'"):
        Selection("test")


@pytest.mark.parametrize("order_by", ["length", "density"])
def test_documents_of_a_shard_go_from_easy_to_hard_with_their_ids(tokens_prefix, corpus: Documents, order_by: str):
    plain = run(tokens_prefix)
    shards = run(tokens_prefix, config=TokenizeConfig(shard_bytes=10_000, order_by=order_by, batch_bytes=300))
    assert shards.order_by == order_by
    assert (shards.tokens, shards.documents) == (plain.tokens, plain.documents)
    texts = {document.id: len(document.text.encode()) for document in iterate_documents(corpus)}
    for shard, before in zip(shards.shards, plain.shards, strict=True):
        ids = document_ids(shards, shard)
        indexed, stored = open_shard(shards, shard), open_shard(plain, before)
        sizes = [len(indexed.document(index)) for index in range(indexed.documents)]
        figures = [float(n) if order_by == "length" else n / texts[i] for n, i in zip(sizes, ids, strict=True)]
        assert figures == sorted(figures)
        assert sorted(ids) == sorted(document_ids(plain, before))
        where = {document: index for index, document in enumerate(document_ids(plain, before))}
        for index, document in enumerate(ids):
            assert np.array_equal(indexed.document(index), stored.document(where[document]))


def test_an_order_by_a_figure_of_the_metadata_needs_it_in_every_document(tokens_prefix):
    config = TokenizeConfig(order_by="metadata.score")
    with pytest.raises(StepError, match=r"has None as 'score' in its metadata, which is no number"):
        run(tokens_prefix, config=config)


def test_held_out_documents_stay_as_they_come(tokens_prefix):
    config = TokenizeConfig(shard_bytes=10_000, order_by="length", packing=PackingConfig("best_fit", 64))
    plain, configured = run(tokens_prefix, Selection("validation")), run(tokens_prefix, Selection("validation"), config)
    assert (configured.order_by, configured.packing) == ("stored", PackingConfig())
    assert [plain.file_info(name).sha256 for name in plain.names()] == [
        configured.file_info(name).sha256 for name in configured.names()
    ]


def test_a_packing_plan_is_written_beside_each_shard_and_its_losses_are_counted(tokens_prefix):
    shards = run(
        tokens_prefix, config=TokenizeConfig(shard_bytes=10_000, packing=PackingConfig("truncate", 64), batch_bytes=99)
    )
    for shard in shards.shards:
        lengths = open_shard(shards, shard).lengths
        plan, losses = plan_packing(lengths, "truncate", 64)
        assert shards.read(f"{shard.name}.plan") == plan.to_bytes()
        assert shard.packing is not None
        assert (shard.packing.dropped_tokens, shard.packing.padded_places) == (
            losses.dropped_tokens,
            losses.padded_places,
        )


def test_checksums_of_the_blocks_lie_beside_each_shard(tokens_prefix):
    shards = run(tokens_prefix)
    for shard in shards.shards:
        _, ids, index = decode_checksums(shards.read(f"{shard.name}.sums"), "")
        for suffix, sums in (("bin", ids), ("idx", index)):
            data = shards.read(f"{shard.name}.{suffix}")
            assert sums.tolist() == [
                zlib.crc32(data[first : first + BLOCK_BYTES]) for first in range(0, len(data), BLOCK_BYTES)
            ]


@pytest.mark.parametrize("order_by", ["", "random", "metadata."])
def test_an_unknown_order_is_refused(order_by: str):
    with pytest.raises(ValueError, match=r"order_by is '.*'; use 'stored'"):
        TokenizeConfig(order_by=order_by)
