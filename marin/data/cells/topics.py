"""Topics: TF-IDF over hashed words, latent semantic vectors, k-means.

Imports numpy, scipy and scikit-learn; import this module inside step bodies only.
"""

from __future__ import annotations

import io
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from marin.data.cells.artifacts import MODEL_FILE, CorpusSample, Topic, TopicModel
from marin.data.cells.config import TopicConfig
from marin.data.cells.ngrams import FOLDED, folded
from marin.data.cells.sample import SampleRows, read_sample, word_places
from marin.execution import Flow, StepError, current_run

_WORDS_SHOWN = 8
_INITIALISATIONS = 8
_BATCH = 4096


@dataclass(frozen=True)
class TopicVectors:
    """What a document's topic follows from.

    Attributes:
        idf: weight of each place of a folded vector [FOLDED].
        components: latent directions [dimensions, FOLDED].
        centres: a vector for each topic [topics, dimensions].
    """

    idf: NDArray[np.float32]
    components: NDArray[np.float32]
    centres: NDArray[np.float32]

    def to_bytes(self) -> bytes:
        """As it lies in ``model.npz``."""
        buffer = io.BytesIO()
        np.savez_compressed(buffer, idf=self.idf, components=self.components, centres=self.centres)
        return buffer.getvalue()

    def assign(self, counts: sp.csr_matrix) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """(topic, cosine to its centre) of each row; of equally near topics the first."""
        vectors = latent(weighted(counts, self.idf), self.components)
        # Products row by row in a fixed order: a matrix product may round by the size of the batch.
        products = np.einsum("nd,kd->nk", vectors, self.centres.astype(np.float64))
        lengths = (self.centres.astype(np.float64) ** 2).sum(axis=1)
        topics = np.argmax(np.round(2 * products - lengths, 9), axis=1)
        cosines = products[np.arange(len(topics)), topics] / np.maximum(np.sqrt(lengths[topics]), 1e-12)
        return topics, np.round(cosines, 6)


def load_topics(model: TopicModel) -> TopicVectors:
    """The vectors of a materialised model."""
    with np.load(io.BytesIO(model.read(MODEL_FILE)), allow_pickle=False) as arrays:
        return TopicVectors(arrays["idf"], arrays["components"], arrays["centres"])


def learn_topics(sample: CorpusSample, config: TopicConfig) -> TopicModel:
    """Cluster the documents of the sample that pass the filters; the body of the step."""
    run = current_run()
    everything = read_sample(sample)
    rows = everything.where(everything.passes)
    vectors, topics = fit_topics(rows, config)
    run.account(
        Flow(
            "documents",
            read=len(everything.ids),
            kept=len(rows.ids),
            dropped={"filtered": len(everything.ids) - len(rows.ids)},
        )
    )
    run.write_bytes(MODEL_FILE, vectors.to_bytes())
    shown = describe_topics(rows, vectors, topics)
    run.write_json(
        "topics.json", [{"topic": one.number, "documents": one.documents, "words": one.words} for one in shown]
    )
    return TopicModel(topics=shown, characters=sample.characters)


def fit_topics(rows: SampleRows, config: TopicConfig) -> tuple[TopicVectors, NDArray[np.int64]]:
    """Topics of these documents, and the topic of each.

    Raises:
        StepError: there are fewer documents than topics.
    """
    from sklearn.cluster import MiniBatchKMeans
    from sklearn.decomposition import TruncatedSVD
    from threadpoolctl import threadpool_limits

    count = len(rows.ids)
    if count < config.clusters:
        raise StepError(
            f"{count} documents of the sample pass the filters, fewer than topics.clusters = {config.clusters}; take "
            "fewer clusters or more pages"
        )
    # One thread: sums of several are not always taken in the same order.
    with threadpool_limits(1):
        idf = inverse_frequencies(rows.counts)
        matrix = weighted(rows.counts, idf)
        dimensions = max(1, min(config.dimensions, count - 1, FOLDED - 1))
        decomposition = TruncatedSVD(dimensions, n_iter=5, random_state=config.seed).fit(matrix)
        components = decomposition.components_.astype(np.float32)
        vectors = latent(matrix, components)
        clusters = MiniBatchKMeans(
            config.clusters, batch_size=_BATCH, n_init=_INITIALISATIONS, random_state=config.seed
        ).fit(vectors, sample_weight=rows.weights)
    centres = clusters.cluster_centers_.astype(np.float32)
    topics, _ = TopicVectors(idf, components, centres).assign(rows.counts)
    sizes = np.bincount(topics, weights=rows.weights, minlength=config.clusters)
    ordered = TopicVectors(idf, components, centres[np.argsort(-sizes, kind="stable")])
    return ordered, ordered.assign(rows.counts)[0]


def inverse_frequencies(counts: sp.csr_matrix) -> NDArray[np.float32]:
    """ln((1 + documents) / (1 + documents with it)) + 1 of each place, as scikit-learn smooths it."""
    small = folded(counts)
    having = np.bincount(small.indices, minlength=FOLDED)
    idf: NDArray[np.float32] = (np.log((1 + small.shape[0]) / (1 + having)) + 1).astype(np.float32)
    return idf


def weighted(counts: sp.csr_matrix, idf: NDArray[np.float32]) -> sp.csr_matrix:
    """Rows of length 1 with (1 + ln count) x idf."""
    small = folded(counts).astype(np.float64)
    small.data = (1 + np.log(small.data)) * idf[small.indices]
    return _unit_rows(small)


def latent(matrix: sp.csr_matrix, components: NDArray[np.float32]) -> NDArray[np.float64]:
    """Rows of length 1 along the latent directions."""
    vectors: NDArray[np.float64] = np.asarray(matrix @ components.T.astype(np.float64))
    lengths: NDArray[np.float64] = np.sqrt((vectors**2).sum(axis=1, keepdims=True))
    unit: NDArray[np.float64] = vectors / np.maximum(lengths, 1e-12)
    return unit


def _unit_rows(matrix: sp.csr_matrix) -> sp.csr_matrix:
    lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    return sp.csr_matrix(sp.diags(1 / np.maximum(lengths, 1e-12)) @ matrix)


def describe_topics(rows: SampleRows, vectors: TopicVectors, topics: NDArray[np.int64]) -> tuple[Topic, ...]:
    """Each topic with the words that its documents have more of than all documents."""
    places = word_places(rows.words)
    numbers = np.array(sorted(places))
    having = sp.csr_matrix((np.ones_like(rows.counts.data), rows.counts.indices, rows.counts.indptr), rows.counts.shape)
    having = having[:, numbers] if len(numbers) else having[:, :0]
    overall = np.asarray(having.mean(axis=0)).ravel()
    found = []
    for number in range(len(vectors.centres)):
        members = np.flatnonzero(topics == number)
        if not len(members):
            found.append(Topic(number, 0, ()))
            continue
        surplus = np.round(np.asarray(having[members].mean(axis=0)).ravel() - overall, 9)
        best = sorted(range(len(numbers)), key=lambda at: (-surplus[at], places[int(numbers[at])]))[:_WORDS_SHOWN]
        found.append(Topic(number, len(members), tuple(places[int(numbers[at])] for at in best if surplus[at] > 0)))
    return tuple(found)
