"""Artifacts and steps of a small pipeline, for the type checker only."""

from dataclasses import dataclass

from marin.execution import Artifact, Fleet, step


@dataclass(frozen=True, kw_only=True)
class Documents(Artifact):
    """Texts."""

    rows: int


@dataclass(frozen=True, kw_only=True)
class Tokenizer(Artifact):
    """A vocabulary."""

    vocab_size: int


@dataclass(frozen=True, kw_only=True)
class Tokens(Artifact):
    """Encoded texts."""

    tokens: int


@dataclass(frozen=True)
class TokenizerConfig:
    """How large a vocabulary."""

    vocab_size: int = 512


@step("typing/extract", version="1")
def extract(source: str) -> Documents:
    """Texts of a source."""
    return Documents(rows=len(source))


@step("typing/tokenizer", version="1")
def train_tokenizer(documents: Documents, config: TokenizerConfig = TokenizerConfig()) -> Tokenizer:
    """A vocabulary of texts."""
    return Tokenizer(vocab_size=config.vocab_size + documents.rows)


@step("typing/tokenize", version="1")
def tokenize(documents: Documents, tokenizer: Tokenizer) -> Tokens:
    """Encoded texts."""
    return Tokens(tokens=documents.rows * tokenizer.vocab_size)


@step("typing/mix", version="1")
def mix(cells: dict[str, Tokens], held_out: tuple[Tokens, ...]) -> Tokens:
    """One stream of many."""
    return Tokens(tokens=sum(cell.tokens for cell in cells.values()) + len(held_out))


FLEET = Fleet(workers=2)
