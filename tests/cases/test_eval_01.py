"""Requests longer than the model: answered in order, cut on the left with a count, and no other score moves."""

from __future__ import annotations

import math

import pytest
from lm_eval.api.instance import Instance

from marin.evaluation.adapter import TrainedModel
from marin.evaluation.framing import Framer
from marin.evaluation.scoring import BatchedScorer
from tests.evaluation.doubles import BYTES, ByteCodec, EchoGenerator, PrefixModel

POSITIONS = 64
REQUESTS = {
    "fits": ("The sky is", " blue"),
    "long context": ("The bridge keeper opened seven glass jars. " * 12, " yes"),
    "one place left": ("a" * 200, "b" * 63),
    "answer fills the model": ("ctx", "b" * 64),
    "answer too long": ("ctx", "b" * 80),
    "no context": ("", "hello"),
    "after": ("Two plus two is", " four"),
}


def model(bos: bool) -> TrainedModel:
    framer = Framer(ByteCodec() if bos else ByteCodec(bos=None), POSITIONS)
    scorer = BatchedScorer(PrefixModel(), vocab_size=BYTES, max_length=POSITIONS, batch_size=3)
    return TrainedModel(framer, scorer, EchoGenerator())


def ask(lm: TrainedModel, pairs) -> list[tuple[float, bool]]:
    return lm.loglikelihood([Instance("loglikelihood", {}, pair, 0, ("task", i, 1)) for i, pair in enumerate(pairs)])


@pytest.mark.parametrize("bos", [True, False])
def test_each_request_scores_as_if_alone_and_in_order(bos):
    together = [p for p, _ in ask(model(bos), REQUESTS.values())]
    alone = [ask(model(bos), [pair])[0][0] for pair in REQUESTS.values()]
    assert together == pytest.approx(alone, abs=1e-4)
    assert all(math.isfinite(p) and p < 0 for p in together)


def test_cut_contexts_and_long_answers_are_counted():
    lm = model(bos=False)
    ask(lm, REQUESTS.values())
    assert lm.counts.answers == 7
    assert lm.counts.cut_contexts == 4  # the long one, and the three whose answers leave less than the context needs
    assert lm.counts.windowed_answers == 1


def test_a_long_context_scores_as_its_right_end():
    context, answer = "x" * 10 + "y" * 70, " yes"
    kept = "y" * (POSITIONS - (len(answer) - 1))
    (whole, _), (end, _) = ask(model(bos=False), [(context, answer), (kept, answer)])
    assert whole == pytest.approx(end, abs=1e-4)


def test_a_long_answer_is_the_sum_of_its_windows():
    framer = Framer(ByteCodec(bos=None), POSITIONS)
    parts = framer.answer("ctx", "b" * 80).requests
    assert [part.scored for part in parts] == [64, 16]
    assert all(len(part.ids) - 1 <= POSITIONS for part in parts)
