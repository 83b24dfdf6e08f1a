"""tok-06: documents get exactly the edge tokens that were asked for, once."""

from __future__ import annotations

import pytest

from marin.execution import materialise
from marin.tokens.shards.reading import document_ids, open_shard
from marin.tokens.shards.steps import tokenize
from marin.tokens.tokenizer.codec import TextCodec, load_codec
from marin.tokens.tokenizer.config import SpecialTokens, TokenizerConfig
from marin.tokens.tokenizer.steps import train_tokenizer
from marin.tokens.tokenizer.training import train_bpe
from tests.tokens.building import written_documents

TEXTS = ("one two three", "", "<|bos|> written by a user")
DOCUMENTS = written_documents(tuple(("docs", "train", 0, text) for text in TEXTS), 1000)


@pytest.mark.parametrize(("bos", "eos"), [(True, True), (False, True), (True, False), (False, False)])
def test_each_setting_gives_its_edges_once_and_empty_documents_are_dropped(tmp_path, bos: bool, eos: bool):
    special = SpecialTokens(reserved=0, add_bos=bos, add_eos=eos)
    step = train_tokenizer(DOCUMENTS, TokenizerConfig(vocab_size=280, special=special))
    tokenizer = materialise(step, prefix=str(tmp_path))
    shards = materialise(tokenize(DOCUMENTS, step), prefix=str(tmp_path))
    codec = load_codec(tokenizer)
    (shard,) = shards.shards
    indexed = open_shard(shards, shard)
    bodies = []
    for index in range(indexed.documents):
        ids = indexed.document(index).tolist()
        if bos:
            assert ids.pop(0) == tokenizer.bos_id
        if eos:
            assert ids.pop() == tokenizer.eos_id
        assert not codec.special_ids.intersection(ids)
        bodies.append(codec.decode(ids))
    assert bodies == [text for text in TEXTS if text]
    assert len(document_ids(shards, shard)) == shards.documents == 2
    assert (shards.bos_id is None, shards.eos_id is None) == (not bos, not eos)


def test_a_name_that_the_vocabulary_lacks_is_refused_before_any_work():
    with pytest.raises(ValueError, match=r"special.add_bos asks for a token that special.bos = None leaves out"):
        SpecialTokens(bos=None)
    definition = train_bpe(["one two"], TokenizerConfig(vocab_size=280, special=SpecialTokens(reserved=0)))
    with pytest.raises(
        ValueError, match=r"eos token '</s>' is not a special token of this tokenizer; it has: <\|bos\|>, "
    ):
        TextCodec.named(definition, eos="</s>")
    with pytest.raises(ValueError, match="bos_id 7 is not the id of a special token"):
        TextCodec(definition, bos_id=7)
