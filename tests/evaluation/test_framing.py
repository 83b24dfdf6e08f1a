"""Texts become requests as training framed them; every token is scored once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lm_eval.utils import get_rolling_token_windows

from marin.evaluation.framing import Framer, Framing, ScoreRequest, rolling_windows
from tests.evaluation.doubles import BOS, EOS, ByteCodec, EntryCodec


def test_framing_is_what_training_put_around_documents():
    assert Framer(ByteCodec(), 8).framing == Framing(BOS, EOS)
    assert Framer(ByteCodec(bos=None), 8).framing == Framing(None, EOS)
    assert Framer(ByteCodec(bos=None, eos=None, adds_bos=True), 8).framing == Framing(None, None)


def test_a_codec_that_frames_with_two_tokens_is_refused_by_name():
    class Chatty(ByteCodec):
        def encode_document(self, text):
            return [1, 2, *text.encode()]

    with pytest.raises(ValueError, match=r"frames a document with \[1, 2\]"):
        Framer(Chatty(), 8)


@given(length=st.integers(1, 60), max_length=st.integers(2, 20))
def test_windows_after_a_bos_are_those_of_lm_eval(length, max_length):
    ids = list(range(length))
    expected = get_rolling_token_windows(ids, BOS, max_seq_len=max_length, context_len=1)
    ours = list(rolling_windows([BOS], ids, max_length))
    assert [(list(r.ids[:-1]), list(r.ids[-r.scored :])) for r in ours] == [(list(a), list(b)) for a, b in expected]


@given(length=st.integers(0, 60), max_length=st.integers(2, 20), head=st.sampled_from([[], [BOS]]))
def test_windows_score_each_token_once_and_fit_the_model(length, max_length, head):
    ids = list(range(length))
    windows = list(rolling_windows(head, ids, max_length))
    assert [i for w in windows for i in w.ids[-w.scored :]] == ids
    assert all(len(w.ids) - 1 <= max_length for w in windows)
    assert all(not w.unconditioned for w in windows[(0 if head else 1) :])


def test_an_answer_that_fills_the_model_keeps_one_token_of_context():
    framed = Framer(ByteCodec(bos=None), 8).answer("context", "12345678")
    assert framed.requests == (ScoreRequest((ord("t"), *b"12345678"), 8),)
    assert framed.context_cut
    assert not framed.answer_windowed


def test_a_cut_context_keeps_its_one_bos():
    (request,) = Framer(ByteCodec(), 8).answer("a long context", "xyz").requests
    assert request.ids == (BOS, *b"ntext", *b"xyz")
    assert request.scored == 3


def test_without_bos_or_context_the_first_token_has_nothing_before_it():
    (request,) = Framer(ByteCodec(bos=None), 8).answer("", "hi").requests
    assert request == ScoreRequest(tuple(b"hi"), 2)
    assert request.unconditioned


def test_an_entry_across_the_border_belongs_to_the_answer():
    codec = EntryCodec("Answer")
    (request,) = Framer(codec, 8).answer("An", "swer").requests
    assert codec.decode(request.ids[-request.scored :]) == "Answer"


@given(context=st.text(max_size=12), answer=st.text(min_size=1, max_size=12), bos=st.sampled_from([None, BOS]))
def test_context_and_answer_are_handed_over_whole_and_something_is_scored(context, answer, bos):
    codec = EntryCodec("ab", " a", "b ", "\n\n", bos=bos)
    (request,) = Framer(codec, 512).answer(context, answer).requests
    ids = request.ids if bos is None else request.ids[1:]
    assert codec.decode(ids) == context + answer
    assert request.scored >= 1
    assert request.ids.count(BOS) == (0 if bos is None else 1)


def test_a_prompt_leaves_room_for_what_is_written():
    ids, cut = Framer(ByteCodec(), 10).prompt("0123456789", new_tokens=4)
    assert ids == [BOS, *b"56789"]
    assert cut
    assert Framer(ByteCodec(), 10).prompt("01234", new_tokens=4) == ([BOS, *b"01234"], False)
