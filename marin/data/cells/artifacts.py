"""Artifacts of the sample, the topics and the quality classifier."""

from __future__ import annotations

from dataclasses import dataclass

from marin.execution import Artifact

MODEL_FILE = "model.npz"


@dataclass(frozen=True, kw_only=True)
class CorpusSample(Artifact):
    """Features of documents that topics and classifier are learnt from, in one file for each shard of pages.

    Attributes:
        files: names of the files, in a fixed order.
        documents: number of documents in them.
        characters: characters of each text that were looked at.
        sources: names of all sources.
    """

    files: tuple[str, ...]
    documents: int
    characters: int
    sources: tuple[str, ...]


@dataclass(frozen=True)
class Topic:
    """One topic: its number, documents of the sample in it, and the words that set it apart."""

    number: int
    documents: int
    words: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class TopicModel(Artifact):
    """Topics, with their vectors in ``model.npz``.

    Attributes:
        topics: in the order of their numbers.
        characters: characters of a text that were looked at.
    """

    topics: tuple[Topic, ...]
    characters: int

    def present(self, places: dict[str, str]) -> str:
        """A line for each topic, and where things lie."""
        rows = [f"c{topic.number:02d} {topic.documents:>9,}  {', '.join(topic.words)}" for topic in self.topics]
        return "\n".join([*rows, *(f"{what}: {where}" for what, where in places.items())])


@dataclass(frozen=True, kw_only=True)
class QualityModel(Artifact):
    """A calibrated classifier, with its weights in ``model.npz`` and its measures in ``report.json``.

    Attributes:
        buckets: number of quality buckets.
        edges: for each topic (or once, for all) the log odds between buckets, ascending; one fewer than buckets.
        positive: documents of the positive set.
        negative: documents of the negative set.
        area: area under the ROC curve on documents that were neither fitted nor calibrated on; None for one bucket.
        characters: characters of a text that were looked at.
    """

    buckets: int
    edges: tuple[tuple[float, ...], ...]
    positive: int
    negative: int
    area: float | None
    characters: int
