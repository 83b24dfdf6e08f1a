"""Configuration of the policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from marin.data.filtering.config import LanguageConfig, Rules


@dataclass(frozen=True)
class QualityConfig:
    """Quality buckets, 0 the lowest, of equal numbers of documents.

    The score is that of ``marin.data.consolidation.quality.score``. Buckets are cut by rank, ties broken by document
    id, so that they depend on the set of documents only.

    Attributes:
        buckets: number of buckets.
        scope: rank the documents within their source, so that every source has every bucket, or all together.
    """

    buckets: int = 2
    scope: Literal["source", "corpus"] = "source"

    def __post_init__(self) -> None:
        if self.buckets < 1:
            raise ValueError(f"QualityConfig.buckets is {self.buckets!r}; it must be at least 1")
        if self.scope not in ("source", "corpus"):
            raise ValueError(f"QualityConfig.scope is {self.scope!r}; it must be 'source' or 'corpus'")


@dataclass(frozen=True)
class Policy:
    """What becomes of each document.

    Attributes:
        rules: thresholds applied instead of those that the signals were judged with; None keeps the judgement. Other
            thresholds cost a join, nothing is measured again.
        language: languages that pass, in the same way.
        drop_duplicates: drop documents that another one stands in for.
        drop_contaminated: drop training documents that overlap evaluation items.
        mask_addresses: replace e-mail addresses and public IP addresses in the text.
        quality: quality buckets.
        samples: documents of each reason, and kept ones, that the report shows.
        title: title of the report and of the data card.
    """

    rules: Rules | None = None
    language: LanguageConfig | None = None
    drop_duplicates: bool = True
    drop_contaminated: bool = True
    mask_addresses: bool = True
    quality: QualityConfig = QualityConfig()
    samples: int = 3
    title: str = "Consolidated documents"

    def __post_init__(self) -> None:
        if self.samples < 0:
            raise ValueError(f"Policy.samples is {self.samples!r}; it must not be negative")
