"""tok-04: the spelling of a special token inside a document is text."""

from __future__ import annotations

import multiprocessing
import pickle

import pytest

from marin.execution import materialise
from marin.tokens.shards.reading import open_shard
from marin.tokens.shards.steps import tokenize
from marin.tokens.tokenizer.codec import TextCodec, load_codec
from marin.tokens.tokenizer.config import SpecialTokens, TokenizerConfig
from marin.tokens.tokenizer.steps import train_tokenizer
from tests.tokens.building import written_documents

TEXTS = (
    "A page about tokens: the string <|endoftext|> ends a document.",
    "<|bos|><|eos|><|pad|>",
    "prefix<|eos|>suffix",
    "<|eos |> and < |eos|> are harmless",
    "ordinary text",
)
DOCUMENTS = written_documents(tuple(("docs", "train", 0, text) for text in TEXTS), 1000)
TOKENIZER = train_tokenizer(DOCUMENTS, TokenizerConfig(vocab_size=320, special=SpecialTokens(eos="<|endoftext|>")))


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("tok04"))


def encode_in_worker(codec: TextCodec) -> list[list[int]]:
    return [codec.encode(text) for text in TEXTS]


def test_no_special_id_appears_inside_a_body(prefix: str):
    codec = load_codec(materialise(TOKENIZER, prefix=prefix))
    assert len(codec.special_ids) == 16
    for text in TEXTS:
        ids = codec.encode(text)
        assert not codec.special_ids.intersection(ids)
        assert codec.decode(ids) == text


def test_shards_hold_special_ids_at_document_edges_only(prefix: str):
    tokenizer = materialise(TOKENIZER, prefix=prefix)
    codec = load_codec(tokenizer)
    shards = materialise(tokenize(DOCUMENTS, TOKENIZER), prefix=prefix)
    found = []
    for shard in shards.shards:
        indexed = open_shard(shards, shard)
        for index in range(indexed.documents):
            ids = indexed.document(index).tolist()
            assert [place for place, token in enumerate(ids) if token in codec.special_ids] == [0, len(ids) - 1]
            assert (ids[0], ids[-1]) == (tokenizer.bos_id, tokenizer.eos_id)
            found.append(codec.decode(ids[1:-1]))
    assert sorted(found) == sorted(TEXTS)


def test_it_holds_in_worker_processes_too(prefix: str):
    codec = load_codec(materialise(TOKENIZER, prefix=prefix))
    assert pickle.loads(pickle.dumps(codec)).special_ids == codec.special_ids
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(encode_in_worker, (codec,)) == encode_in_worker(codec)
