"""The trained tokenizer as an artifact."""

from __future__ import annotations

from dataclasses import dataclass

from marin.execution import Artifact

TOKENIZER_FILE = "tokenizer.json"
TEMPLATE_FILE = "chat_template.jinja"
"""Jinja template of conversations, beside the tokenizer where it has one."""


@dataclass(frozen=True, kw_only=True)
class Tokenizer(Artifact):
    """A tokenizer; its file is ``tokenizer.json`` in the format of Hugging Face ``tokenizers``.

    Attributes:
        vocab_size: entries of the model's vocabulary (``real_vocab_size`` filled up to a multiple).
        real_vocab_size: entries that the tokenizer can emit; ids are below this.
        asked_vocab_size: entries that the configuration asked for.
        bos_id: id of the begin-of-document token, or None.
        eos_id: id of the end-of-document token.
        pad_id: id of the padding token.
        add_bos: documents begin with ``bos_id``.
        add_eos: documents end with ``eos_id``.
        trained_bytes: UTF-8 bytes of text that it was trained on; 0 for one that was made elsewhere.
        sha256: digest of ``tokenizer.json``.
    """

    vocab_size: int
    real_vocab_size: int
    asked_vocab_size: int
    bos_id: int | None
    eos_id: int
    pad_id: int
    add_bos: bool
    add_eos: bool
    trained_bytes: int
    sha256: str

    def present(self, places: dict[str, str]) -> str:
        """A line for the console, and where things lie."""
        origin = f"trained on {self.trained_bytes / 1e6:,.1f} MB" if self.trained_bytes else "made elsewhere"
        line = f"tokenizer of {self.real_vocab_size:,} entries (model vocabulary {self.vocab_size:,}), {origin}"
        return "\n".join([line, *(f"{what}: {where}" for what, where in places.items())])
