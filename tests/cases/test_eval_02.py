"""An answer is never left without a token to score, wherever the vocabulary's entries end."""

from __future__ import annotations

import pytest
from lm_eval.api.instance import Instance

from marin.evaluation.adapter import TrainedModel
from marin.evaluation.framing import Framer
from tests.evaluation.doubles import BOS, EchoGenerator, EntryCodec, UniformScorer

CODEC = EntryCodec("Answer", "hello", "world", ": C")
PAIRS = {
    "joined": ("Ans", "wer"),
    "inside a word": ("hello wor", "ld"),
    "space at the end of the context": ("Answer: ", "C"),
    "space at the start of the answer": ("Answer:", " C"),
    "line ends on both sides": ("Q?\n", "\nA"),
}


def request(pair: tuple[str, str]) -> Instance:
    return Instance("loglikelihood", {}, pair, 0, ("task", 0, 1))


@pytest.mark.parametrize("name", PAIRS)
def test_an_answer_has_a_scored_token(name):
    context, answer = PAIRS[name]
    (framed,) = Framer(CODEC, 64).answer(context, answer).requests
    assert framed.scored >= 1
    assert CODEC.decode(framed.ids[1:]) == context + answer
    assert CODEC.decode(framed.ids[-framed.scored :]).endswith(answer)
    assert framed.ids.count(BOS) == 1


def test_a_space_on_either_side_of_the_border_scores_the_same_tokens():
    framer = Framer(CODEC, 64)
    one = framer.answer(*PAIRS["space at the end of the context"])
    other = framer.answer(*PAIRS["space at the start of the answer"])
    assert one == other


def test_an_empty_answer_scores_zero_and_is_counted():
    model = TrainedModel(Framer(CODEC, 64), UniformScorer(), EchoGenerator())
    assert model.loglikelihood([request(("Answer:", "")), request(("Answer: ", ""))]) == [(0.0, True), (0.0, True)]
    assert model.counts.empty_answers == 2
