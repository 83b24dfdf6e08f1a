"""What a tokenizer is trained to be. Free of heavy imports."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from marin.execution import External

LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Llama-3-style split pattern: contractions, words with one leading mark, up to three digits, marks, white space."""

BYTE_SYMBOLS = 256


@dataclass(frozen=True)
class SpecialTokens:
    """The tokens that only the pipeline writes; they take the first ids, in this order.

    Attributes:
        bos: spelling of the begin-of-document token, or None for a vocabulary without one.
        eos: spelling of the end-of-document token.
        pad: spelling of the padding token.
        reserved: further ids kept for later use, spelled ``<|reserved_0|>`` and so on.
        add_bos: every document begins with ``bos``.
        add_eos: every document ends with ``eos``.
        chat_template: Jinja template of conversations, which goes with the tokenizer into exports; None for none.
    """

    bos: str | None = "<|bos|>"
    eos: str = "<|eos|>"
    pad: str = "<|pad|>"
    reserved: int = 13
    add_bos: bool = True
    add_eos: bool = True
    chat_template: str | None = None

    def __post_init__(self) -> None:
        if self.reserved < 0:
            raise ValueError(f"special.reserved is {self.reserved}; it is a number of ids, 0 or more")
        if self.add_bos and self.bos is None:
            raise ValueError(
                "special.add_bos asks for a token that special.bos = None leaves out; name it or unset add_bos"
            )
        spellings = self.spellings
        for spelling in spellings:
            if not spelling:
                raise ValueError("special tokens need a spelling; one of bos, eos, pad is empty")
            if spellings.count(spelling) > 1:
                raise ValueError(
                    f"special token {spelling!r} is named twice; bos, eos, pad and reserved ones must differ"
                )

    @property
    def spellings(self) -> tuple[str, ...]:
        """All spellings in the order of their ids."""
        named = (self.bos, self.eos, self.pad) if self.bos is not None else (self.eos, self.pad)
        return (*named, *(f"<|reserved_{index}|>" for index in range(self.reserved)))


@dataclass(frozen=True)
class KnownTokenizer:
    """A tokenizer that was made elsewhere.

    Attributes:
        name: what it is called in reports.
        files: a ``tokenizer.json``, or a folder that holds one and the other files of a Hugging Face tokenizer.
    """

    name: str
    files: External

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError(f"KnownTokenizer.name of {self.files.path!r} is empty; give it a name for the reports")


@dataclass(frozen=True)
class ImportConfig:
    """How a tokenizer that was made elsewhere is used. It must be byte-level and give documents back exactly.

    Attributes:
        known: the tokenizer.
        bos: spelling of the token that documents begin with; None takes the one that its own settings name, if any.
        eos: spelling of the token that documents end with; None takes the one that its own settings name.
        pad: spelling of the padding token; None takes the one that its own settings name, and else ``eos``, since what
            is padded has no part in any loss.
        add_bos: every document begins with ``bos``, where there is one.
        add_eos: every document ends with ``eos``.
        pad_to_multiple: the model's vocabulary is the real one, filled up to a multiple of this.
    """

    known: KnownTokenizer
    bos: str | None = None
    eos: str | None = None
    pad: str | None = None
    add_bos: bool = True
    add_eos: bool = True
    pad_to_multiple: int = 128

    def __post_init__(self) -> None:
        if self.pad_to_multiple < 1:
            raise ValueError(f"ImportConfig.pad_to_multiple is {self.pad_to_multiple}; it must be at least 1")


@dataclass(frozen=True)
class TokenizerConfig:
    """Training of a byte-level BPE tokenizer.

    Attributes:
        vocab_size: most entries: 256 bytes, the special tokens and the merges.
        pad_to_multiple: the model's vocabulary is the real one, filled up to a multiple of this.
        split_pattern: regular expression (Oniguruma) whose matches are the units that no token crosses.
        special: special tokens and which of them frame a document.
        min_frequency: pairs seen less often are never merged.
        max_token_length: bound on the bytes of a token, or None. The trainer keeps to it to within a byte or two.
        sample_bytes: most text to train on; documents are drawn by the hash of their id.
        sample_document_chars: most characters that one document gives to the sample.
        source_weights: share of the sample by source; empty for the natural shares. Needs every source when given.
        on_shortfall: what happens when the text is too small for ``vocab_size``.
        report_bytes: text encoded for the report, by source and split, and by language.
        references: known tokenizers that the report compares with.
        seed: draws the sample.
    """

    vocab_size: int = 128_256
    pad_to_multiple: int = 128
    split_pattern: str = LLAMA3_SPLIT
    special: SpecialTokens = SpecialTokens()
    min_frequency: int = 2
    max_token_length: int | None = 64
    sample_bytes: int = 1 << 30
    sample_document_chars: int = 200_000
    source_weights: dict[str, float] = field(default_factory=dict)
    on_shortfall: Literal["report", "error"] = "report"
    report_bytes: int = 2_000_000
    references: tuple[KnownTokenizer, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        least = BYTE_SYMBOLS + len(self.special.spellings)
        if self.vocab_size < least:
            raise ValueError(
                f"tokenizer.vocab_size is {self.vocab_size}, below 256 bytes plus {len(self.special.spellings)} "
                f"special tokens; ask for at least {least}"
            )
        for name in ("pad_to_multiple", "min_frequency", "sample_bytes", "sample_document_chars", "report_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"tokenizer.{name} is {getattr(self, name)}; it must be at least 1")
        if self.max_token_length is not None and self.max_token_length < 1:
            raise ValueError(
                f"tokenizer.max_token_length is {self.max_token_length}; give at least 1, or null for no limit"
            )
        if not self.split_pattern:
            raise ValueError("tokenizer.split_pattern is empty; give a regular expression, such as the default")
        if self.split_pattern != LLAMA3_SPLIT:
            _refuse_unreadable(self.split_pattern)
        for source, weight in self.source_weights.items():
            if not (math.isfinite(weight) and weight >= 0):
                raise ValueError(
                    f"tokenizer.source_weights[{source!r}] is {weight}; weights are finite and not negative"
                )
        if self.source_weights and sum(self.source_weights.values()) <= 0:
            raise ValueError("tokenizer.source_weights are all zero; give at least one source a positive weight")
        names = [known.name for known in self.references]
        if len(set(names)) != len(names):
            raise ValueError(f"tokenizer.references names {names}; give each a name of its own")
        if self.on_shortfall not in ("report", "error"):
            raise ValueError(f"tokenizer.on_shortfall is {self.on_shortfall!r}; use 'report' or 'error'")

    def padded_size(self, real_size: int) -> int:
        """Entries of the model's vocabulary for a tokenizer of ``real_size`` entries."""
        return padded(real_size, self.pad_to_multiple)


def padded(size: int, multiple: int) -> int:
    """A size, filled up to a multiple."""
    return -(-size // multiple) * multiple


def _refuse_unreadable(pattern: str) -> None:
    from tokenizers import Regex  # not needed for the default

    try:
        Regex(pattern)
    except Exception as error:  # the library raises plain Exception
        raise ValueError(
            f"tokenizer.split_pattern is {pattern!r}, which is no regular expression of Oniguruma: {error}"
        ) from error
