"""The quality classifier: logistic regression over hashed words and signals, calibrated, and cut into buckets.

Imports numpy, scipy and scikit-learn; import this module inside step bodies only.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from marin.data.cells.artifacts import MODEL_FILE, CorpusSample, QualityModel, TopicModel
from marin.data.cells.config import SIGNAL_COLUMNS, QualityConfig
from marin.data.cells.ngrams import HASHED
from marin.data.cells.sample import SampleRows, read_sample
from marin.data.cells.topics import load_topics
from marin.execution import Flow, StepError, current_run

FEWEST = 10
"""Documents that each set needs: too few in one of the three parts tell nothing."""

_PARTS = (0.6, 0.8)
"""Where the documents for fitting end, and those for calibrating; the rest measures."""
_SIGNAL_LIMIT = 5.0
_DIGITS = 6
_RELIABILITY_BINS = 10


@dataclass(frozen=True)
class LinearModel:
    """Log odds of a document to be of the positive set.

    Attributes:
        words: weight of each place of the hashed vector [HASHED].
        signals: weight of each standardised signal.
        means: mean of each signal, from which it is taken off.
        scales: what each signal is divided by.
        slope: Platt's factor on the linear value.
        intercept: what is added after it.
    """

    words: NDArray[np.float64]
    signals: NDArray[np.float64]
    means: NDArray[np.float64]
    scales: NDArray[np.float64]
    slope: float
    intercept: float

    def log_odds(self, counts: sp.csr_matrix, signals: NDArray[np.float64]) -> NDArray[np.float64]:
        """Calibrated log odds of each row, rounded, so that batches of any size give the same."""
        linear = np.asarray(unit_counts(counts) @ self.words).ravel()
        linear = linear + np.einsum("ns,s->n", standardised(signals, self.means, self.scales), self.signals)
        odds: NDArray[np.float64] = np.round(self.slope * linear + self.intercept, _DIGITS)
        return odds

    def to_bytes(self) -> bytes:
        """As it lies in ``model.npz``."""
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer,
            words=self.words,
            signals=self.signals,
            means=self.means,
            scales=self.scales,
            platt=np.array([self.slope, self.intercept]),
        )
        return buffer.getvalue()


def load_quality(model: QualityModel) -> LinearModel:
    """The weights of a materialised model."""
    with np.load(io.BytesIO(model.read(MODEL_FILE)), allow_pickle=False) as arrays:
        slope, intercept = arrays["platt"].tolist()
        return LinearModel(arrays["words"], arrays["signals"], arrays["means"], arrays["scales"], slope, intercept)


def unit_counts(counts: sp.csr_matrix) -> sp.csr_matrix:
    """Rows of length 1 with 1 + ln count."""
    damped = counts.astype(np.float64)
    damped.data = 1 + np.log(damped.data)
    lengths = np.sqrt(np.asarray(damped.multiply(damped).sum(axis=1)).ravel())
    return sp.csr_matrix(sp.diags(1 / np.maximum(lengths, 1e-12)) @ damped)


def standardised(
    signals: NDArray[np.float64], means: NDArray[np.float64], scales: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Signals around 0 with unit spread, cut off where a page is beyond all measure."""
    centred: NDArray[np.float64] = np.clip((signals - means) / scales, -_SIGNAL_LIMIT, _SIGNAL_LIMIT)
    return centred


def learn_quality(sample: CorpusSample, topics: TopicModel, config: QualityConfig) -> QualityModel:
    """Fit, calibrate, cut and measure; the body of the step."""
    run = current_run()
    try:
        config.check_sources(sample.sources)
    except ValueError as error:
        raise StepError(str(error)) from error
    rows = read_sample(sample)
    labels = labels_of(rows, config)
    labelled = np.flatnonzero(labels >= 0)
    positive, negative = int((labels == 1).sum()), int((labels == 0).sum())
    dropped = {"other_source": len(labels) - len(labelled)} if len(labelled) < len(labels) else {}
    run.account(Flow("documents", read=len(labels), kept=len(labelled), dropped=dropped))
    report: dict[str, Any] = {}
    if config.buckets == 1:
        model = no_model()
    else:
        _refuse_small(positive, negative)
        model, report = fit(rows, labels, config)
    kept = rows.where(rows.passes)
    topic_of, _ = load_topics(topics).assign(kept.counts)
    groups = topic_of if config.scope == "topic" else np.zeros(len(kept.ids), np.int64)
    odds = model.log_odds(kept.counts, kept.signals)
    edges = tuple(
        edges_of(odds[groups == group], kept.weights[groups == group], config.buckets)
        for group in range(len(topics.topics) if config.scope == "topic" else 1)
    )
    run.write_bytes(MODEL_FILE, model.to_bytes())
    run.write_json("report.json", {"positive": positive, "negative": negative, "edges": edges, **report})
    return QualityModel(
        buckets=config.buckets,
        edges=edges,
        positive=positive,
        negative=negative,
        area=report.get("area"),
        characters=sample.characters,
    )


def _refuse_small(positive: int, negative: int) -> None:
    for field, count in (("positive", positive), ("negative", negative)):
        if count < FEWEST:
            raise StepError(
                f"the {field} set of the quality classifier has {count} documents, fewer than {FEWEST}; name sources "
                "with more in quality.positive and quality.negative, or set quality.buckets to 1"
            )


def labels_of(rows: SampleRows, config: QualityConfig) -> NDArray[np.int64]:
    """1 for documents of the positive set, 0 for those of the negative set, -1 for all others."""
    if not config.positive:
        return rows.passes.astype(np.int64)
    labels = np.full(len(rows.ids), -1, np.int64)
    positive = np.isin(rows.sources, config.positive)
    negative = np.isin(rows.sources, config.negative) if config.negative else ~positive
    labels[negative] = 0
    labels[positive & rows.passes] = 1
    return labels


def no_model() -> LinearModel:
    """What stands in for a classifier where there is nothing to tell apart: even odds for everything."""
    signals = len(SIGNAL_COLUMNS)
    return LinearModel(np.zeros(HASHED), np.zeros(signals), np.zeros(signals), np.ones(signals), 1.0, 0.0)


def fit(rows: SampleRows, labels: NDArray[np.int64], config: QualityConfig) -> tuple[LinearModel, dict[str, Any]]:
    """The calibrated model of labelled rows, and its measures on rows that it has not seen."""
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    parts = parts_of(rows.ids, labels, config.seed)
    fitting = np.flatnonzero(parts == 0)
    means = rows.signals[fitting].mean(axis=0)
    spread = rows.signals[fitting].std(axis=0)
    scales = np.where(spread > 0, spread, 1.0)
    features = sp.hstack(
        [unit_counts(rows.counts), sp.csr_matrix(standardised(rows.signals, means, scales))], format="csr"
    )
    with threadpool_limits(1):
        # Sets of any two sizes count alike; the true share comes back in by calibration.
        linear = LogisticRegression(C=1 / config.regularisation, class_weight="balanced", max_iter=1_000, tol=1e-6)
        linear.fit(features[fitting], labels[fitting])
        weights = linear.coef_[0]
        values = np.asarray(features @ weights).ravel()
        calibrating = np.flatnonzero(parts == 1)
        slope, intercept = platt(values[calibrating], labels[calibrating])
    model = LinearModel(weights[:HASHED], weights[HASHED:], means, scales, slope, intercept)
    measuring = np.flatnonzero(parts == 2)
    odds = model.log_odds(rows.counts[measuring], rows.signals[measuring])
    return model, measures(odds, labels[measuring], model)


def parts_of(ids: Sequence[str] | NDArray[Any], labels: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """0 for fitting, 1 for calibrating, 2 for measuring, -1 without a label: by rank of a hash within each set."""
    keys = [hashlib.blake2b(f"{seed}/{one}".encode(), digest_size=8, person=b"marin.parts").digest() for one in ids]
    parts = np.full(len(labels), -1, np.int64)
    for label in (0, 1):
        members = sorted(np.flatnonzero(labels == label).tolist(), key=lambda at: (keys[at], str(ids[at])))
        for rank, at in enumerate(members):
            share = (rank + 0.5) / len(members)
            parts[at] = sum(share >= limit for limit in _PARTS)
    return parts


def platt(values: NDArray[np.float64], labels: NDArray[np.int64]) -> tuple[float, float]:
    """Slope and intercept of the logistic curve through values and labels.

    Platt (1999), "Probabilistic outputs for support vector machines": targets are (n+ + 1) / (n+ + 2) and
    1 / (n- + 2), so that well parted sets do not give infinite slopes. A curve that falls is flattened, or the
    order of the documents would turn round.
    """
    from sklearn.linear_model import LogisticRegression

    positive, negative = int((labels == 1).sum()), int((labels == 0).sum())
    target = np.where(labels == 1, (positive + 1) / (positive + 2), 1 / (negative + 2))
    # A soft target is a share of both labels: each value stands there twice, with the shares as weights.
    curve = LogisticRegression(C=1e6, max_iter=1_000, tol=1e-8).fit(
        np.concatenate([values, values])[:, None],
        np.concatenate([np.ones(len(values)), np.zeros(len(values))]),
        sample_weight=np.concatenate([target, 1 - target]),
    )
    return max(float(curve.coef_[0, 0]), 1e-3), float(curve.intercept_[0])


def probability(odds: NDArray[np.float64]) -> NDArray[np.float64]:
    """The probability of log odds, without overflow."""
    from scipy.special import expit

    found: NDArray[np.float64] = np.round(expit(odds), _DIGITS)
    return found


def edges_of(odds: NDArray[np.float64], weights: NDArray[np.float64], buckets: int) -> tuple[float, ...]:
    """Weighted quantiles at 1/buckets, 2/buckets …: the least value that holds at least that share below or at it."""
    if not len(odds):
        return (0.0,) * (buckets - 1)
    order = np.argsort(odds, kind="stable")
    shares = np.cumsum(weights[order]) / weights.sum()
    # A share that is reached but for rounding is reached.
    places = np.searchsorted(shares, np.arange(1, buckets) / buckets - 1e-12)
    return tuple(float(value) for value in odds[order][np.minimum(places, len(odds) - 1)])


def buckets_of(
    odds: NDArray[np.float64], topics: NDArray[np.int64], edges: Sequence[Sequence[float]]
) -> NDArray[np.int64]:
    """The bucket of each value: the number of edges below it, of its topic's edges where there are several."""
    table = np.array(edges, np.float64).reshape(len(edges), -1)
    chosen = table[topics] if len(edges) > 1 else np.repeat(table, len(odds), axis=0)
    found: NDArray[np.int64] = (odds[:, None] > chosen).sum(axis=1)
    return found


def measures(odds: NDArray[np.float64], labels: NDArray[np.int64], model: LinearModel) -> dict[str, Any]:
    """How well the classifier parts the sets and how true its probabilities are, and what the signals weigh."""
    from sklearn.metrics import brier_score_loss, roc_auc_score

    chances = probability(odds)
    bins = np.minimum((chances * _RELIABILITY_BINS).astype(int), _RELIABILITY_BINS - 1)
    reliability = [
        {
            "documents": int((bins == number).sum()),
            "predicted": round(float(chances[bins == number].mean()), _DIGITS),
            "positive": round(float(labels[bins == number].mean()), _DIGITS),
        }
        for number in range(_RELIABILITY_BINS)
        if (bins == number).any()
    ]
    off = sum(row["documents"] * abs(row["predicted"] - row["positive"]) for row in reliability) / len(labels)
    return {
        "measured_on": len(labels),
        "area": round(float(roc_auc_score(labels, odds)), _DIGITS),
        "brier": round(float(brier_score_loss(labels, chances)), _DIGITS),
        "calibration_error": round(off, _DIGITS),
        "reliability": reliability,
        "signal_weights": {
            name: round(float(weight), _DIGITS) for name, weight in zip(SIGNAL_COLUMNS, model.signals, strict=True)
        },
    }
