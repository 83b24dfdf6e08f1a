"""tok-03: the real vocabulary size is never above the request, and is what the model reads."""

from __future__ import annotations

import logging

import pytest

from marin.execution import StepError, materialise
from marin.tokens.tokenizer.config import SpecialTokens, TokenizerConfig
from marin.tokens.tokenizer.steps import train_tokenizer
from tests.tokens.building import written_documents

SPECIAL = SpecialTokens(reserved=0)
LINES = ("the cat sat on the mat", "the dog sat on the log") * 3


def train(prefix, **config):
    rows = tuple(("docs", "train", 0, line) for line in LINES)
    step = train_tokenizer(written_documents(rows, 1000), TokenizerConfig(special=SPECIAL, **config))
    return materialise(step, prefix=str(prefix))


def test_a_size_below_bytes_and_special_tokens_is_refused_when_it_is_read():
    with pytest.raises(
        ValueError, match="vocab_size is 50, below 256 bytes plus 3 special tokens; ask for at least 259"
    ):
        TokenizerConfig(vocab_size=50, special=SPECIAL)


@pytest.mark.parametrize(("multiple", "padded"), [(1, 260), (128, 384)])
def test_a_size_of_260_gives_260(tmp_path, multiple: int, padded: int):
    tokenizer = train(tmp_path, vocab_size=260, pad_to_multiple=multiple)
    assert (tokenizer.real_vocab_size, tokenizer.vocab_size) == (260, padded)


def test_a_shortfall_is_reported_and_the_model_reads_the_real_size(tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        tokenizer = train(tmp_path, vocab_size=100_000, pad_to_multiple=8)
    assert 259 < tokenizer.real_vocab_size < 300
    assert tokenizer.vocab_size == -(-tokenizer.real_vocab_size // 8) * 8
    vocabulary = tokenizer.read_json("report.json")["vocabulary"]
    assert vocabulary["shortfall"] == 100_000 - tokenizer.real_vocab_size
    assert "tokenizer.vocab_size asks for 100000 entries, the text gives" in caplog.text


def test_a_shortfall_can_be_an_error(tmp_path):
    with pytest.raises(StepError, match="asks for 100000 entries, the text gives"):
        train(tmp_path, vocab_size=100_000, on_shortfall="error")
