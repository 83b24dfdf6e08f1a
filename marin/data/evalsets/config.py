"""Configuration of evaluation sets."""

from __future__ import annotations

from dataclasses import dataclass

from marin.data.filtering.personal import PersonalData
from marin.execution import External


@dataclass(frozen=True)
class EvalSetConfig:
    """An evaluation set from held-out documents.

    Attributes:
        name: name of the set.
        validation_share: share of all documents that are held out, by a hash of their id. Consolidation takes its
            split from here.
        seed: root seed of the choices.
        choice_items: most multiple-choice items; 0 for none.
        choices: continuations to choose from, one of them true.
        items_per_document: most items from one document.
        context_characters: longest context; an item needs at least a quarter of it.
        shortest_continuation: fewest characters of a continuation.
        longest_continuation: most characters of a continuation.
        rolling_documents: most documents of the perplexity task.
        rolling_characters: characters after which such a document is cut at a line or word break.
        pool_documents: most held-out documents of a source that items are made from, those of the least hash of their
            id; it bounds what one process holds, a few kilobytes a document.
        personal: what becomes of personal data; the same as in the documents that train (``policy.personal``), so that
            a model is not asked for what it cannot have read.
    """

    name: str = "heldout"
    validation_share: float = 0.05
    seed: int = 0
    choice_items: int = 200
    choices: int = 4
    items_per_document: int = 4
    context_characters: int = 600
    shortest_continuation: int = 40
    longest_continuation: int = 240
    rolling_documents: int = 50
    rolling_characters: int = 8000
    pool_documents: int = 2000
    personal: PersonalData = PersonalData()

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name:
            raise ValueError(f"EvalSetConfig.name is {self.name!r}; give a name without slashes")
        if not 0.0 < self.validation_share < 1.0:
            raise ValueError(
                f"EvalSetConfig.validation_share is {self.validation_share!r}; it must lie between 0 and 1"
            )
        if self.choices < 2:
            raise ValueError(f"EvalSetConfig.choices is {self.choices!r}; it must be at least 2")
        for name in ("choice_items", "rolling_documents"):
            if getattr(self, name) < 0:
                raise ValueError(f"EvalSetConfig.{name} is {getattr(self, name)!r}; it must not be negative")
        for name in (
            "items_per_document",
            "context_characters",
            "rolling_characters",
            "shortest_continuation",
            "pool_documents",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"EvalSetConfig.{name} is {getattr(self, name)!r}; it must be at least 1")
        if self.shortest_continuation > self.longest_continuation:
            raise ValueError(
                f"EvalSetConfig.shortest_continuation is {self.shortest_continuation!r}, above longest_continuation "
                f"({self.longest_continuation!r})"
            )


@dataclass(frozen=True)
class EvalFileConfig:
    """An evaluation set that lies in JSON-lines files, read so that training text can be compared with it.

    Attributes:
        name: name of the set.
        files: the files: local paths or URLs; what is packed with gzip, bzip2, xz or zstd is unpacked. Their versions
            are their identity.
        fields: fields whose text is looked for, what an item asks first. A list of texts counts as one text after the
            other.
        id_field: field with the item's id; the line number where None.
    """

    name: str
    files: tuple[External, ...]
    fields: tuple[str, ...]
    id_field: str | None = None

    def __post_init__(self) -> None:
        if not self.name or "/" in self.name:
            raise ValueError(f"EvalFileConfig.name is {self.name!r}; give a name without slashes")
        if not self.files:
            raise ValueError(f"EvalFileConfig.files of {self.name!r} is empty; name at least one JSON-lines file")
        if not self.fields:
            raise ValueError(f"EvalFileConfig.fields of {self.name!r} is empty; name the fields that hold text")
