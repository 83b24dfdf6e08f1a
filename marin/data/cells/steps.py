"""The steps that learn topics and quality from a sample of the corpus, and grade every document."""

from __future__ import annotations

from collections.abc import Sequence

from marin.data.cells.artifacts import CorpusSample, QualityModel, TopicModel
from marin.data.cells.config import QualityConfig, SampleConfig, TopicConfig
from marin.data.documents.artifacts import Attributes, Documents
from marin.data.evalsets.artifacts import EvalSet
from marin.execution import step


@step("cells/sample", version="1", fans_out=True)
def sample_corpus(
    pages: Sequence[Documents],
    signals: Sequence[Attributes],
    duplicates: Attributes,
    evalset: EvalSet,
    config: SampleConfig = SampleConfig(),
) -> CorpusSample:
    """Hashed words and signals of some training documents of every source.

    Copies, held-out documents, and those with a bad URL or in other languages are left out.

    Args:
        pages: the sources.
        signals: the signals of each, in the same order.
        duplicates: the duplicates among all sources.
        evalset: the evaluation set from held-out documents; it says which share of documents is held out.
        config: how many documents.
    """
    from marin.data.cells.sample import sample_documents

    return sample_documents(pages, signals, duplicates, evalset.validation_share, config)


@step("cells/topics", version="1")
def train_topics(sample: CorpusSample, config: TopicConfig = TopicConfig()) -> TopicModel:
    """Topics of the documents that pass the filters. ``topics.json`` has the size and the words of each."""
    from marin.data.cells.topics import learn_topics

    return learn_topics(sample, config)


@step("cells/quality", version="1")
def train_quality(sample: CorpusSample, topics: TopicModel, config: QualityConfig = QualityConfig()) -> QualityModel:
    """A classifier of quality, calibrated, with the edges of its buckets. ``report.json`` says how good it is."""
    from marin.data.cells.classifier import learn_quality

    return learn_quality(sample, topics, config)


@step("documents/cells", version="1", fans_out=True)
def grade(
    pages: Sequence[Documents], signals: Sequence[Attributes], quality: QualityModel, topics: TopicModel
) -> Attributes:
    """Score, quality bucket and topic of every document.

    Args:
        pages: the sources.
        signals: the signals of each, in the same order.
        quality: the classifier.
        topics: the topics, learnt from the same sample.
    """
    from marin.data.cells.grade import grade_documents

    return grade_documents(pages, signals, quality, topics)
