from __future__ import annotations

import numpy as np
import pytest

from marin.data.documents.artifacts import Documents
from marin.data.documents.io import iterate_documents
from marin.execution import StepError, materialise
from marin.tokens.shards.config import Selection, TokenizeConfig
from marin.tokens.shards.encode import bundle_shards, pack_counts, unpack_counts
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
