"""Configuration of the policy."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, field

from marin.data.documents.licences import UNKNOWN, is_known, licence_name, likely_name
from marin.data.filtering.config import LanguageConfig, Rules
from marin.data.filtering.personal import PersonalData
from marin.execution import External


@dataclass(frozen=True)
class TakedownEntry:
    """A document, or all documents below an address, that must go.

    Attributes:
        what: a document id (32 hex digits) or a URL; a URL that ends in ``*`` stands for all that begin like it.
        reason: why, for those who look the document up later.
    """

    what: str
    reason: str

    def __post_init__(self) -> None:
        if not self.is_url and not re.fullmatch(r"[0-9a-f]{32}", self.what):
            raise ValueError(
                f"TakedownEntry.what is {self.what!r}; give a document id of 32 hex digits, or a URL with its scheme"
            )
        if "*" in self.what.removesuffix("*"):
            raise ValueError(f"TakedownEntry.what is {self.what!r}; a * may only stand at the end")
        if not self.reason.strip():
            raise ValueError(f"TakedownEntry.reason of {self.what!r} is empty; say why the document must go")

    @property
    def is_url(self) -> bool:
        """Whether it is meant by its address."""
        return "://" in self.what

    @property
    def is_pattern(self) -> bool:
        """Whether it stands for all addresses that begin like it."""
        return self.is_url and self.what.endswith("*")


@dataclass(frozen=True)
class TakedownConfig:
    """Documents that must not be in what is made, whatever the rest of the policy says.

    Attributes:
        files: lists, one entry a line: a document id or a URL, a space, the reason. Blank lines and lines that begin
            with ``#`` are passed over. Lists are read when the graph is built, and what they hold is part of the
            identity beside their version.
        entries: the same, written down here.
        copies: the documents that duplicate removal found to be copies of a listed one go with it.
    """

    files: tuple[External, ...] = ()
    entries: tuple[TakedownEntry, ...] = ()
    copies: bool = True


@dataclass(frozen=True)
class LicenceConfig:
    """Licences that are let pass.

    A document's licence is the ``licence`` or ``license`` of its metadata, or else that of its source, under its SPDX
    name (``CC-BY-SA-4.0``) where it has one.

    Attributes:
        keep: SPDX names that pass, and shell patterns such as ``CC-BY-*``; empty lets every licence pass. A name that
            SPDX does not know is given as a pattern, so that a misspelt one is not taken for it.
        keep_unknown: let documents pass of which no licence is known.
        of_source: the licence of a source's documents that tell none themselves.
    """

    keep: tuple[str, ...] = ()
    keep_unknown: bool = True
    of_source: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.keep:
            if name == UNKNOWN:
                raise ValueError(
                    f"LicenceConfig.keep names {UNKNOWN!r}; whether documents of no known licence pass is said by "
                    "keep_unknown"
                )
            if not is_known(name) and not any(sign in name for sign in "*?["):
                likely = likely_name(name)
                raise ValueError(
                    f"LicenceConfig.keep names {name!r}, which is no SPDX name"
                    f"{f'; did you mean {likely!r}?' if likely else '.'} A name that only your documents have is "
                    f"given as a pattern, such as '{name}*'"
                )

    @property
    def is_open(self) -> bool:
        """Whether every document passes."""
        return not self.keep and self.keep_unknown

    def reason(self, licence: str) -> str | None:
        """Why a document of this licence is dropped, or None."""
        if licence == UNKNOWN:
            return None if self.keep_unknown else "licence_unknown"
        if not self.keep or any(fnmatch.fnmatchcase(licence, pattern) for pattern in self.keep):
            return None
        return "licence_other"

    def default_of(self, source: str) -> str:
        """The licence of a source's documents that tell none."""
        return licence_name(self.of_source.get(source, UNKNOWN))


@dataclass(frozen=True)
class Policy:
    """What becomes of each document.

    Attributes:
        rules: thresholds applied instead of those that the signals were judged with; None keeps the judgement. Other
            thresholds cost a join, nothing is measured again.
        language: languages that pass, in the same way.
        drop_duplicates: drop documents that another one stands in for.
        drop_contaminated: drop training documents that overlap evaluation items.
        cut_repeated: cut passages out of texts that other documents have too, as far as steps have marked some; a
            document of which nothing is left is dropped.
        personal: what becomes of personal data in the texts.
        takedown: documents that must go, by id or address.
        licence: licences that pass.
        samples: documents of each reason, and kept ones, that the report shows.
        title: title of the report and of the data card.
    """

    rules: Rules | None = None
    language: LanguageConfig | None = None
    drop_duplicates: bool = True
    drop_contaminated: bool = True
    cut_repeated: bool = True
    personal: PersonalData = PersonalData()
    takedown: TakedownConfig = TakedownConfig()
    licence: LicenceConfig = LicenceConfig()
    samples: int = 3
    title: str = "Consolidated documents"

    def __post_init__(self) -> None:
        if self.samples < 0:
            raise ValueError(f"Policy.samples is {self.samples!r}; it must not be negative")
