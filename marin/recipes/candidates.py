"""Which tokenizers a comparison trains a model with."""

from __future__ import annotations

from dataclasses import dataclass

from marin.tokens.tokenizer.config import ImportConfig, TokenizerConfig


@dataclass(frozen=True)
class Candidate:
    """A tokenizer that is compared."""

    name: str
    """What it is called in paths and tables."""
    tokenizer: TokenizerConfig | ImportConfig | None = None
    """How it is trained, or what is imported; null for the scale's own `tokenizer`."""
    vocab_size: int | None = None
    """Entries of the model's vocabulary, filled up to the multiple. An import needs it, since the steps that a budget
    pays for depend on it; of one that is trained it is what `tokenizer` asks for, and null here.
    """

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name:
            raise ValueError(f"comparison.candidates has the name {self.name!r}; give a name without slashes")
        if isinstance(self.tokenizer, ImportConfig) and self.vocab_size is None:
            raise ValueError(
                f"candidate {self.name!r} is imported and has no vocab_size; give the entries of its vocabulary, "
                f"filled up to a multiple of {self.tokenizer.pad_to_multiple}"
            )
        if not isinstance(self.tokenizer, ImportConfig) and self.vocab_size is not None:
            raise ValueError(
                f"candidate {self.name!r} is trained and has the vocab_size {self.vocab_size}; leave it null, and set "
                "tokenizer.vocab_size"
            )
        if self.vocab_size is not None and self.vocab_size < 1:
            raise ValueError(f"candidate {self.name!r} has the vocab_size {self.vocab_size}; give at least 1")
        if isinstance(self.tokenizer, ImportConfig) and self.vocab_size is not None:
            multiple = self.tokenizer.pad_to_multiple
            if filled := -self.vocab_size % multiple:
                raise ValueError(
                    f"candidate {self.name!r} has the vocab_size {self.vocab_size}, which is no multiple of "
                    f"pad_to_multiple {multiple}; a vocabulary of {self.vocab_size} entries is filled up to "
                    f"{self.vocab_size + filled}"
                )


@dataclass(frozen=True)
class TokenizerComparison:
    """Small models that differ in their tokenizer alone, trained at equal FLOPs (experiments/compare_tokenizers.py)."""

    candidates: tuple[Candidate, ...] = ()
    """The first is what the others are compared with."""
    seeds: int = 1
    """Models that are trained with each; from two on there is an error bar."""
    flops: float | None = None
    """FLOPs of each training run; null for those of `training` with the scale's own `model`."""

    def __post_init__(self) -> None:
        names = [candidate.name for candidate in self.candidates]
        if len(set(names)) != len(names):
            raise ValueError(f"comparison.candidates are named {', '.join(names)}; give each a name of its own")
        if self.seeds < 1:
            raise ValueError(f"comparison.seeds is {self.seeds}; train at least 1 model with each tokenizer")
        if self.flops is not None and self.flops <= 0:
            raise ValueError(f"comparison.flops is {self.flops}; give a positive budget, or null for the scale's own")
