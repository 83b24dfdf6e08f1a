"""The sample: which documents are learnt from, and their features.

Imports numpy, scipy and pyarrow; import this module inside step bodies only.
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from marin.data.cells.artifacts import CorpusSample
from marin.data.cells.config import SIGNAL_COLUMNS, SampleConfig
from marin.data.cells.ngrams import HASHED, hashed_counts, places_of, words_of
from marin.data.documents.artifacts import Attributes, Documents, DocumentShard
from marin.data.documents.attributes import read_attributes
from marin.data.documents.io import iterate_batches
from marin.data.documents.split import split_of
from marin.execution import Flow, StepError, current_run

_TEXT_RULES = ("gopher_", "c4_", "fineweb_")
_WORDS_KEPT = 5_000
_BATCH_ROWS = 256


@dataclass(frozen=True)
class _Task:
    """One shard of pages to sample. Pickles."""

    name: str
    pages: Documents
    shard: DocumentShard
    signals: Attributes
    duplicates: Attributes
    validation_share: float
    rate: float
    config: SampleConfig


@dataclass(frozen=True)
class SampleRows:
    """Documents of the sample, sorted by id; every array has an entry each.

    Attributes:
        ids: document ids.
        sources: their sources.
        passes: whether the filters let them pass.
        weights: how many documents of the corpus each stands for.
        counts: hashed counts [documents, HASHED].
        signals: signal columns [documents, SIGNAL_COLUMNS].
        words: how many documents of the sample have each frequent word.
    """

    ids: NDArray[Any]
    sources: NDArray[Any]
    passes: NDArray[np.bool_]
    weights: NDArray[np.float64]
    counts: sp.csr_matrix
    signals: NDArray[np.float64]
    words: Counter[str]

    def where(self, chosen: NDArray[np.bool_]) -> SampleRows:
        """Some of the rows."""
        return SampleRows(
            self.ids[chosen],
            self.sources[chosen],
            self.passes[chosen],
            self.weights[chosen],
            self.counts[np.flatnonzero(chosen)],
            self.signals[chosen],
            self.words,
        )


def sample_documents(
    pages: Sequence[Documents],
    signals: Sequence[Attributes],
    duplicates: Attributes,
    validation_share: float,
    config: SampleConfig,
) -> CorpusSample:
    """Draw the sample and write its features; the body of the step."""
    if len(pages) != len(signals):
        raise StepError(
            f"sample got {len(pages)} documents and {len(signals)} signals; give the signals of each, in order"
        )
    run = current_run()
    rows: Counter[str] = Counter()
    for documents in pages:
        for shard in documents.shards:
            rows[shard.source] += shard.rows
    tasks = [
        _Task(
            name=f"sample/{documents.identity[:10]}/{shard.name}.npz",
            pages=documents,
            shard=shard,
            signals=attributes,
            duplicates=duplicates,
            validation_share=validation_share,
            rate=min(1.0, config.documents_per_source / rows[shard.source]),
            config=config,
        )
        for documents, attributes in zip(pages, signals, strict=True)
        for shard in documents.shards
    ]
    taken = run.map(_sample_shard, tasks)
    files = tuple(task.name for task, count in zip(tasks, taken, strict=True) if count)
    return CorpusSample(files=files, documents=sum(taken), characters=config.characters, sources=tuple(sorted(rows)))


def in_sample(document_id: str, rate: float, seed: int) -> bool:
    """Whether a document is in the sample: a function of its id, the rate and the seed."""
    digest = hashlib.blake2b(f"{seed}/{document_id}".encode(), digest_size=8, person=b"marin.sample").digest()
    return int.from_bytes(digest, "big") < rate * 2**64


def _sample_shard(task: _Task) -> int:
    run = current_run()
    judged = read_attributes(task.signals, task.pages, task.shard, columns=("id", "reasons", *SIGNAL_COLUMNS))
    copies = read_attributes(task.duplicates, task.pages, task.shard, columns=("reason",)).column("reason").to_pylist()
    ids: list[str] = judged.column("id").to_pylist()
    reasons: list[list[str]] = judged.column("reasons").to_pylist()
    fates = [
        _left_out(document_id, why, copy, task) for document_id, why, copy in zip(ids, reasons, copies, strict=True)
    ]
    chosen = [at for at, fate in enumerate(fates) if fate is None]
    dropped = Counter(fate for fate in fates if fate is not None)
    run.account(Flow("documents", read=len(ids), kept=len(chosen), dropped=dict(sorted(dropped.items()))))
    if not chosen:
        return 0
    counts, words = _features(task, set(chosen))
    columns = [np.array(judged.column(name).to_pylist(), np.float64)[chosen] for name in SIGNAL_COLUMNS]
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        ids=np.array([ids[at] for at in chosen]),
        source=np.array(task.shard.source),
        passes=np.array([not reasons[at] for at in chosen]),
        weight=np.array(1.0 / task.rate),
        data=counts.data,
        indices=counts.indices,
        indptr=counts.indptr,
        signals=np.stack(columns, axis=1),
        words=np.array([word for word, _ in words], dtype=np.str_),
        word_documents=np.array([count for _, count in words], np.int64),
    )
    run.write_bytes(task.name, buffer.getvalue())
    return len(chosen)


def _left_out(document_id: str, reasons: list[str], copy: str | None, task: _Task) -> str | None:
    """Why a document is not in the sample, or None when it is."""
    if split_of(document_id, task.validation_share) != "train":
        return "validation"
    if copy is not None:
        return "duplicate"
    if any(not reason.startswith(_TEXT_RULES) for reason in reasons):
        return "filtered"
    return None if in_sample(document_id, task.rate, task.config.seed) else "not_sampled"


def _features(task: _Task, chosen: set[int]) -> tuple[sp.csr_matrix, list[tuple[str, int]]]:
    parts: list[sp.csr_matrix] = []
    words: Counter[str] = Counter()
    start = 0
    for batch in iterate_batches(task.pages, task.shard, columns=("text",), batch_rows=_BATCH_ROWS):
        column = batch.column("text")
        texts = [column[at].as_py()[: task.config.characters] for at in range(batch.num_rows) if start + at in chosen]
        if texts:
            parts.append(hashed_counts(texts))
            for text in texts:
                words.update(set(words_of(text)))
        start += batch.num_rows
        current_run().progress(start, task.shard.rows)
    # Ties are broken by the word, so that the list does not hang on the order of a set.
    return sp.vstack(parts, format="csr"), sorted(words.items(), key=lambda item: (-item[1], item[0]))[:_WORDS_KEPT]


def read_sample(sample: CorpusSample) -> SampleRows:
    """The whole sample, sorted by id, so that what is learnt does not depend on the shards.

    Raises:
        StepError: the sample is empty.
    """
    if not sample.files:
        raise StepError("no document is left to learn from; look at what the filters and duplicate removal dropped")
    parts = []
    words: Counter[str] = Counter()
    for name in sample.files:
        with sample.open(name) as stream, np.load(io.BytesIO(stream.read()), allow_pickle=False) as arrays:
            part = {key: arrays[key] for key in arrays.files}
        words.update(dict(zip(part["words"].tolist(), part["word_documents"].tolist(), strict=True)))
        parts.append(part)
    ids = np.concatenate([part["ids"] for part in parts])
    order = np.argsort(ids, kind="stable")
    counts = sp.vstack(
        [
            sp.csr_matrix((part["data"], part["indices"], part["indptr"]), shape=(len(part["ids"]), HASHED))
            for part in parts
        ],
        format="csr",
    )
    return SampleRows(
        ids=ids[order],
        sources=np.concatenate([np.full(len(part["ids"]), str(part["source"])) for part in parts])[order],
        passes=np.concatenate([part["passes"] for part in parts])[order],
        weights=np.concatenate([np.full(len(part["ids"]), float(part["weight"])) for part in parts])[order],
        counts=counts[order],
        signals=np.concatenate([part["signals"] for part in parts])[order],
        words=words,
    )


def word_places(words: Counter[str]) -> dict[int, str]:
    """The most frequent word of each place in the vectors that has one."""
    found: dict[int, str] = {}
    ranked = [word for word, _ in sorted(words.items(), key=lambda item: (-item[1], item[0]))]
    for word, place in zip(ranked, places_of(ranked), strict=True):
        found.setdefault(place, word)
    return found
