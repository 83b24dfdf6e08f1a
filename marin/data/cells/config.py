"""Configuration of the sample, the topics and the quality classifier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SIGNAL_COLUMNS = (
    "mean_word_length",
    "hashes_per_word",
    "ellipses_per_word",
    "bullet_lines",
    "ellipsis_lines",
    "alphabetic_words",
    "stop_word_share",
    "duplicate_lines",
    "duplicate_paragraphs",
    "duplicate_line_characters",
    "top_2_gram",
    "duplicate_5_grams",
    "duplicate_10_grams",
    "terminal_lines",
    "short_lines",
    "line_breaks_per_word",
)
"""Signals that the classifier reads. None is a length, or it would learn how long the texts of the positive set are."""


@dataclass(frozen=True)
class SampleConfig:
    """Documents that the topics and the classifier are learnt from.

    A document is in the sample by a hash of its id, at a rate for each source, so the sample is the same for any order,
    sharding and number of workers. Each stands for as many as its source's rate leaves out.

    Attributes:
        documents_per_source: about how many documents of each source are taken.
        characters: characters of a text that are looked at, here and when documents are graded.
        seed: root seed of the choice.
    """

    documents_per_source: int = 50_000
    characters: int = 10_000
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("documents_per_source", "characters"):
            if getattr(self, name) < 1:
                raise ValueError(f"SampleConfig.{name} is {getattr(self, name)!r}; it must be at least 1")


@dataclass(frozen=True)
class TopicConfig:
    """Topics: clusters of k-means over latent semantic vectors of hashed words.

    Attributes:
        clusters: number of topics. They are numbered by size, 0 the largest.
        dimensions: length of the vectors (fewer when there are fewer documents).
        seed: seed of the decomposition and of the clustering.
    """

    clusters: int = 40
    dimensions: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("clusters", "dimensions"):
            if getattr(self, name) < 1:
                raise ValueError(f"TopicConfig.{name} is {getattr(self, name)!r}; it must be at least 1")


@dataclass(frozen=True)
class QualityConfig:
    """A linear classifier that tells a positive from a negative set, and buckets of its score, 0 the lowest.

    As for GPT-3 (Brown et al. 2020, appendix A, https://arxiv.org/abs/2005.14165) the positive set is text that is
    known to be good, the negative set is the crawl as it comes.

    Attributes:
        positive: sources whose documents are the positive set, of these the ones that pass the filters. Without any,
            the documents that pass the filters are told from those that the text rules drop.
        negative: sources of the negative set; all others when empty. Documents that pass and those that the text rules
            drop belong to it, those with a bad URL or in other languages do not.
        buckets: number of buckets; one needs no classifier.
        scope: cut the buckets at quantiles of the whole corpus, or of each topic, so that every topic has every bucket.
        regularisation: strength of the quadratic penalty; C of scikit-learn is one over it.
        seed: root seed of the division into parts for fitting, calibrating and measuring.
    """

    positive: tuple[str, ...] = ()
    negative: tuple[str, ...] = ()
    buckets: int = 5
    scope: Literal["corpus", "topic"] = "corpus"
    regularisation: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.buckets < 1:
            raise ValueError(f"QualityConfig.buckets is {self.buckets!r}; it must be at least 1")
        if self.scope not in ("corpus", "topic"):
            raise ValueError(f"QualityConfig.scope is {self.scope!r}; it must be 'corpus' or 'topic'")
        if not self.regularisation > 0:
            raise ValueError(f"QualityConfig.regularisation is {self.regularisation!r}; it must be above 0")
        both = sorted(set(self.positive) & set(self.negative))
        if both:
            raise ValueError(f"QualityConfig.positive and negative both name {', '.join(both)}; name a source once")
        if self.negative and not self.positive:
            raise ValueError("QualityConfig.negative names sources and positive none; name the positive ones too")

    def check_sources(self, sources: tuple[str, ...]) -> None:
        """Refuse sources that are not there.

        Raises:
            ValueError: naming the field and the source.
        """
        for field in ("positive", "negative"):
            for source in getattr(self, field):
                if source not in sources:
                    raise ValueError(f"quality.{field} names {source!r}, which is no source; {', '.join(sources)} are")
