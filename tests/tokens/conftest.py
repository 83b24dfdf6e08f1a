"""Corpus and tokenizer that the tests of this room share."""

from __future__ import annotations

from pathlib import Path

import pytest

from marin.data.documents.artifacts import Documents
from marin.execution import materialise
from marin.tokens.tokenizer.artifacts import Tokenizer
from marin.tokens.tokenizer.steps import train_tokenizer
from tests.tokens.building import SMALL_TOKENIZER, prose, written_documents


def _rows() -> tuple[tuple[str, str, int, str], ...]:
    rows = []
    for index in range(60):
        source = ("docs", "web")[index % 2]
        split = "validation" if index % 5 == 4 else "train"
        rows.append((source, split, index % 3, prose(index, 30 + 7 * index)))
    rows.append(("web", "train", 0, ""))
    rows.append(("web", "train", 0, "a page about <|eos|> and <|bos|> tokens, 東京都 naïve"))
    return tuple(rows)


CORPUS = written_documents(_rows(), 20_000)


@pytest.fixture(scope="session")
def tokens_prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that the room's tests share."""
    return tmp_path_factory.mktemp("tokens")


@pytest.fixture(scope="session")
def corpus(tokens_prefix: Path) -> Documents:
    """Consolidated documents of two sources, three qualities and both splits, one of them empty."""
    return materialise(CORPUS, prefix=str(tokens_prefix))


@pytest.fixture(scope="session")
def tokenizer(tokens_prefix: Path) -> Tokenizer:
    """A tokenizer of 400 entries trained on the corpus."""
    return materialise(train_tokenizer(CORPUS, SMALL_TOKENIZER), prefix=str(tokens_prefix))
