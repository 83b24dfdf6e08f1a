"""Documents that the report shows: of each label those with the least hash of their id, whatever the sharding.

Imports pyarrow; import this module inside step bodies only.
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace

from marin.data.consolidation.config import Policy
from marin.data.consolidation.places import Place
from marin.data.consolidation.predicates import PREDICATES, explain
from marin.data.consolidation.report import Sample
from marin.data.documents.attributes import read_attributes
from marin.data.filtering.personal import PERSONAL_KINDS
from marin.data.filtering.pii import mask
from marin.execution import Intermediate, current_run

KEPT = "kept"

_EXCERPT = 600
_LONGEST_FIND = 512
"""Characters beyond the excerpt that are looked at, so that no address is cut in two before it is masked."""


@dataclass(frozen=True, order=True)
class Rank:
    """Where a document stands among those of its label.

    Attributes:
        label: the label.
        hash: of its id, in hex.
        number: its number among all documents.
    """

    label: str
    hash: str
    number: int


def most_of(label: str, policy: Policy) -> int:
    """How many documents of a label are shown."""
    return 4 * policy.samples if label == KEPT else policy.samples


def hash_of(document_id: str) -> str:
    """The hash that ranks a document."""
    return hashlib.blake2b(document_id.encode(), digest_size=8).hexdigest()


def excerpt_of(text: str) -> str:
    """The beginning of a text. What a report shows is read by people: no personal data, whatever the policy."""
    return mask(text[: _EXCERPT + _LONGEST_FIND], PERSONAL_KINDS).text[:_EXCERPT]


class Sampler:
    """Keeps the samples of what it is offered: at most `most_of` a label."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        # By label a heap with the greatest rank on top.
        self._heaps: dict[str, list[tuple[_Reverse, Sample]]] = defaultdict(list)

    def wants(self, rank: Rank) -> bool:
        """Whether a document is among the first of its label as yet."""
        heap = self._heaps[rank.label]
        return len(heap) < most_of(rank.label, self._policy) or bool(heap and rank < heap[0][0].rank)

    def put(self, rank: Rank, sample: Sample) -> None:
        """Take in a document that is wanted."""
        heap = self._heaps[rank.label]
        full = len(heap) == most_of(rank.label, self._policy)
        (heapq.heapreplace if full else heapq.heappush)(heap, (_Reverse(rank), sample))

    def explain(self, place: Place) -> None:
        """Say by which value the documents of a shard were dropped, where nothing else was said."""
        numbers = range(place.start, place.start + place.shard.rows)
        entries = [
            (heap, at)
            for label, heap in self._heaps.items()
            if label in PREDICATES
            for at, (key, _) in enumerate(heap)
            if key.rank.number in numbers
        ]
        if not entries:
            return
        columns = sorted({PREDICATES[heap[at][0].rank.label].column for heap, at in entries})
        table = read_attributes(place.signals, place.pages, place.shard, columns=columns)
        for heap, at in entries:
            key, sample = heap[at]
            row = key.rank.number - place.start
            values = {name: table.column(name)[row].as_py() for name in columns}
            why = sample.why or explain(sample.label, values, self._policy.rules, self._policy.language)
            heap[at] = key, replace(sample, why=why)

    def ranked(self) -> list[tuple[Rank, Sample]]:
        """All samples in the order of their ranks."""
        found = [(key.rank, sample) for heap in self._heaps.values() for key, sample in heap]
        return sorted(found, key=lambda one: one[0])


class _Reverse:
    """A rank that compares the other way round: a heap has its greatest on top."""

    def __init__(self, rank: Rank) -> None:
        self.rank = rank

    def __lt__(self, other: _Reverse) -> bool:
        return self.rank > other.rank


@dataclass(frozen=True)
class SampleFile:
    """The samples of one task: their ranks, and the file that holds them in this order."""

    ranks: tuple[Rank, ...]
    file: Intermediate | None


def store_samples(sampler: Sampler) -> SampleFile:
    """Leave samples for the report."""
    ranked = sampler.ranked()
    if not ranked:
        return SampleFile((), None)
    data = json.dumps([asdict(sample) for _, sample in ranked]).encode()
    return SampleFile(tuple(rank for rank, _ in ranked), current_run().store_intermediate("samples.json", data))


def choose_samples(files: Sequence[SampleFile], policy: Policy) -> tuple[Sample, ...]:
    """The samples of all tasks that are shown. Only files that hold one of them are read."""
    by_label: dict[str, list[Rank]] = defaultdict(list)
    for file in files:
        for rank in file.ranks:
            by_label[rank.label].append(rank)
    chosen = {rank for label, ranks in by_label.items() for rank in heapq.nsmallest(most_of(label, policy), ranks)}
    found = [sample for file in files for sample in _chosen_of(file, chosen)]
    return tuple(sorted(found, key=lambda sample: (sample.label, sample.id)))


def _chosen_of(file: SampleFile, chosen: set[Rank]) -> Iterable[Sample]:
    if file.file is None or chosen.isdisjoint(file.ranks):
        return
    samples = json.loads(current_run().load_intermediate(file.file))
    for rank, sample in zip(file.ranks, samples, strict=True):
        if rank in chosen:
            yield Sample(**sample)
