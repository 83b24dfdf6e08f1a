"""Text reaches the model with exactly one BOS if training had one, else with none, on every path."""

from __future__ import annotations

import pytest
from lm_eval.api.instance import Instance

from marin.evaluation.adapter import TrainedModel
from marin.evaluation.framing import Framer
from marin.evaluation.generation import BatchedGenerator
from marin.evaluation.scoring import BatchedScorer
from tests.evaluation.doubles import BOS, BYTES, EOS, ByteCodec, PrefixModel

TOKENIZERS = {
    "trained with BOS": (ByteCodec(bos=BOS), 1),
    "trained with BOS, and the tokenizer adds one too": (ByteCodec(bos=BOS, adds_bos=True), 1),
    "trained without BOS": (ByteCodec(bos=None), 0),
    "trained without BOS, but the tokenizer adds one": (ByteCodec(bos=None, adds_bos=True), 0),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_ids_handed_to_the_model_have_the_bos_of_training(name):
    codec, expected = TOKENIZERS[name]
    spy = PrefixModel()
    framer = Framer(codec, 64)
    scorer = BatchedScorer(spy, vocab_size=BYTES, max_length=64)
    generator = BatchedGenerator(
        spy, codec.decode, eos_id=EOS, forbidden=(BOS, EOS), real_vocab_size=BYTES, max_length=64
    )
    model = TrainedModel(framer, scorer, generator)

    def seen(method, arguments):
        spy.seen.clear()
        getattr(model, method)([Instance(method, {}, arguments, 0, ("task", 0, 1))])
        return spy.seen

    paths = [
        seen("loglikelihood", ("What is it?", " nothing")),
        seen("loglikelihood", ("", "no context")),
        seen("loglikelihood_rolling", ("a whole document",)),
        seen("generate_until", ("Once upon", {"max_gen_toks": 3})),
    ]
    for rows in paths:
        assert rows
        for ids in rows:
            assert ids.count(BOS) == expected
            assert ids.index(BOS) == 0 if expected else BOS not in ids
            assert EOS not in ids
    assert framer.framing.bos_id == (BOS if expected else None)


def test_a_document_in_several_windows_begins_once():
    windows = Framer(ByteCodec(), 16).document("a document that is longer than the model can read")
    assert [window.ids.count(BOS) for window in windows] == [1] + [0] * (len(windows) - 1)
    assert len(windows) > 1


def test_a_chat_template_is_refused_instead_of_framing_text_anew():
    model = TrainedModel(Framer(ByteCodec(), 16), None, None)
    with pytest.raises(NotImplementedError, match="no chat template"):
        model.apply_chat_template([{"role": "user", "content": "hello"}])
