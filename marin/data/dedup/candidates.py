"""Documents that may be copies of one another: connected, put in order of preference, and dealt out to tasks.

Imports numpy; import this module inside step bodies only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marin.data.dedup.buckets import Edges, Scanned, load_pairs
from marin.data.dedup.components import connected
from marin.data.dedup.config import DedupConfig
from marin.data.dedup.exchange import load_columns, store_columns
from marin.data.dedup.keys import URL, Numbers
from marin.execution import Intermediate

_MEMBER_SIZE = 8
"""What a document counts in a task beside its n-grams."""


@dataclass(frozen=True)
class ClusterTask:
    """Everything that ties documents, for one task. Pickles.

    Attributes:
        scanned: what each group of shards came to.
        edges: pairs of all groups and parts.
        labels: files of (document, least document of its component), when that has been found already; else None.
        group_starts: number of the first document of each group.
        origin_starts: number of the first document of each artifact.
        across: only components that reach over several artifacts count.
        config: what counts as a copy.
    """

    scanned: tuple[Scanned, ...]
    edges: tuple[Edges, ...]
    labels: tuple[Intermediate, ...] | None
    group_starts: tuple[int, ...]
    origin_starts: tuple[int, ...]
    across: bool
    config: DedupConfig


@dataclass(frozen=True)
class Clustered:
    """Candidates, dealt out.

    Attributes:
        wanted: for each group the file of its candidates (see `Wanted`), None without any.
        followers: for each group the file of its documents that follow a candidate (see `Following`), None without.
        bins: for each task of verification the number of parts that it looks at one after the other.
        components: number of components.
        largest: documents in the largest component.
    """

    wanted: tuple[Intermediate | None, ...]
    followers: tuple[Intermediate | None, ...]
    bins: tuple[int, ...]
    components: int
    largest: int


@dataclass(frozen=True)
class Wanted:
    """Candidates, an entry each.

    Attributes:
        numbers: their numbers.
        tasks: the task that compares them.
        bins: the part of the task.
        labels: least number of their component.
        orders: place in the order of preference over all candidates; equal where ids have to decide.
        reads: whether the text has to be read; of documents with equal words one is.
    """

    numbers: Numbers
    tasks: Numbers
    bins: Numbers
    labels: Numbers
    orders: Numbers
    reads: NDArray[np.bool_]

    def columns(self) -> tuple[NDArray[np.generic], ...]:
        """All columns in their order."""
        return tuple(getattr(self, name) for name in self.__dataclass_fields__)

    def rows(self, chosen: NDArray[np.generic]) -> Wanted:
        """Some of the entries."""
        return Wanted(*(column[chosen] for column in self.columns()))


@dataclass(frozen=True)
class Following:
    """Documents that are known to be copies of a candidate of their own source, an entry each.

    Attributes:
        numbers: their numbers.
        tasks: the task that compares the candidate.
        labels: least number of its component.
        orders: place in the order of preference; equal where ids have to decide.
        keepers: number of the candidate.
        kinds: why, as in `keys.REASONS`.
        sizes: words of the text.
        shares: share of their n-grams in the candidate; NaN when unknown.
    """

    numbers: Numbers
    tasks: Numbers
    labels: Numbers
    orders: Numbers
    keepers: Numbers
    kinds: Numbers
    sizes: Numbers
    shares: NDArray[np.float64]

    def columns(self) -> tuple[NDArray[np.generic], ...]:
        """All columns in their order."""
        return tuple(getattr(self, name) for name in self.__dataclass_fields__)

    def rows(self, chosen: NDArray[np.generic]) -> Following:
        """Some of the entries."""
        return Following(*(column[chosen] for column in self.columns()))


@dataclass(frozen=True)
class _Members:
    """All candidates and their followers while they are put in order."""

    numbers: Numbers
    labels: Numbers
    words: Numbers
    keepers: Numbers
    kinds: Numbers
    shares: NDArray[np.float64]


def cluster(task: ClusterTask) -> Clustered:
    """Connect the documents of all groups, and deal the candidates out."""
    members, components, largest = _members(task)
    levels, heads, sizes = _orders_of(task, members.numbers)
    follows = members.keepers >= 0
    order = np.lexsort((members.numbers, heads[:, 1], heads[:, 0], levels, members.labels))
    tied = _equal_to_previous(members.labels[order], levels[order], heads[order, 0], heads[order, 1])
    places = np.empty(len(order), np.int64)
    places[order] = np.cumsum(~tied) - 1
    own = order[~follows[order]]
    reads = np.zeros(len(follows), bool)
    if task.config.fuzzy:
        reads[own] = _first_of_words(members, own, np.zeros(len(own), np.int64))
    size = np.where(reads, sizes, 0) + _MEMBER_SIZE
    tasks, bins = deal_tasks(members.labels[own], places[own], size[own], task.config)
    of_task, of_bin = np.zeros(len(order), np.int64), np.zeros(len(order), np.int64)
    of_task[own], of_bin[own] = tasks, bins
    of_task[follows] = tasks[np.searchsorted(members.labels[own], members.labels[follows])]
    if task.config.fuzzy:
        # Every part reads a text of its own for documents of equal words.
        reads[own] = _first_of_words(members, own, of_bin[own])
    wanted = Wanted(members.numbers, of_task, of_bin, members.labels, places, reads).rows(~follows)
    following = Following(
        members.numbers, of_task, members.labels, places, members.keepers, members.kinds, sizes, members.shares
    ).rows(follows)
    count = int(tasks.max(initial=-1)) + 1
    most = np.zeros(count, np.int64)
    np.maximum.at(most, of_task, of_bin + 1)
    return Clustered(
        wanted=split_by_group("wanted", wanted, task.group_starts),
        followers=split_by_group("followers", following, task.group_starts),
        bins=tuple(most.tolist()),
        components=components,
        largest=largest,
    )


def split_by_group(name: str, rows: Wanted | Following, group_starts: Sequence[int]) -> tuple[Intermediate | None, ...]:
    """Leave the entries of each group in a file, None for a group without any."""
    groups = np.searchsorted(np.array(group_starts, np.int64), rows.numbers, side="right") - 1
    files: list[Intermediate | None] = [None] * len(group_starts)
    for group in np.unique(groups).tolist():
        chosen = np.flatnonzero(groups == group)
        ascending = chosen[np.argsort(rows.numbers[chosen], kind="stable")]
        files[group] = store_columns(f"{name}-{group:05d}.npy", *rows.rows(ascending).columns())
    return tuple(files)


def deal_tasks(labels: Numbers, places: Numbers, sizes: Numbers, config: DedupConfig) -> tuple[Numbers, Numbers]:
    """The task of each document, and the part of it: a component is in one task, a part holds a bounded size.

    Args:
        labels: component of each document, in ascending order.
        places: place in the order of preference, ascending; documents of one place stay together.
        sizes: what each document takes of a task.
        config: how much a task compares at a time.
    """
    if not len(labels):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    limit = config.n_grams_per_task
    before = np.cumsum(sizes) - sizes
    begins = _begins(labels)
    windows = before[begins] // limit
    _, task = np.unique(windows, return_inverse=True)
    tasks = np.repeat(task, np.diff(begins, append=len(labels)))
    of_task = _begins(tasks)
    within = before - np.repeat(before[of_task], np.diff(of_task, append=len(tasks)))
    parts = within // limit
    tied = _begins(places)
    parts = np.repeat(parts[tied], np.diff(tied, append=len(places)))
    # Parts are numbered without gaps.
    steps = np.zeros(len(parts), np.int64)
    steps[1:] = (parts[1:] != parts[:-1]) & (tasks[1:] == tasks[:-1])
    counted = np.cumsum(steps)
    return tasks, counted - np.repeat(counted[of_task], np.diff(of_task, append=len(tasks)))


def _members(task: ClusterTask) -> tuple[_Members, int, int]:
    words = load_pairs([edges.words for edges in task.edges])
    if task.labels is None:
        urls = load_pairs([edges.urls for edges in task.edges])
        bands = load_pairs([edges.bands for edges in task.edges])
        one, other = (np.concatenate(ends) for ends in zip(words, urls, bands, strict=True))
        nodes, places = np.unique(np.concatenate([one, other]), return_inverse=True)
        labels = nodes[connected(places[: len(one)], places[len(one) :], len(nodes))]
    else:
        nodes, labels = load_pairs(task.labels)
        order = np.argsort(nodes)
        nodes, labels = nodes[order], labels[order]
    same_words = _classes(nodes, words)
    chosen = _reaching_over(nodes, labels, task.origin_starts) if task.across else np.ones(len(nodes), bool)
    nodes, labels, same_words = nodes[chosen], labels[chosen], same_words[chosen]
    _, counts = np.unique(labels, return_counts=True)
    own = _Members(
        nodes,
        labels,
        same_words,
        np.full(len(nodes), -1),
        np.zeros(len(nodes), np.int64),
        np.full(len(nodes), np.nan),
    )
    return _with_followers(task, own), len(counts), int(counts.max(initial=0))


def _classes(nodes: Numbers, pairs: tuple[Numbers, Numbers]) -> Numbers:
    """For each node the least one that pairs tie it to."""
    one, other = (np.searchsorted(nodes, ends) for ends in pairs)
    return nodes[connected(one, other, len(nodes))] if len(nodes) else nodes


def _reaching_over(nodes: Numbers, labels: Numbers, origin_starts: Sequence[int]) -> NDArray[np.bool_]:
    """Which nodes are in a component with documents of several artifacts."""
    origins = np.searchsorted(np.array(origin_starts, np.int64), nodes, side="right") - 1
    found, component = np.unique(labels, return_inverse=True)
    least, most = np.full(len(found), len(origin_starts)), np.full(len(found), -1)
    np.minimum.at(least, component, origins)
    np.maximum.at(most, component, origins)
    reaching: NDArray[np.bool_] = (least != most)[component]
    return reaching


def _with_followers(task: ClusterTask, own: _Members) -> _Members:
    """The candidates with the documents that follow them, ascending by number."""
    parts = [own]
    for scanned in task.scanned:
        if scanned.followers is None or not len(own.numbers):
            continue
        numbers, keepers, kinds, shares = load_columns(scanned.followers)
        at = np.minimum(np.searchsorted(own.numbers, keepers), len(own.numbers) - 1)
        chosen = own.numbers[at] == keepers
        numbers = numbers[chosen]
        parts.append(_Members(numbers, own.labels[at[chosen]], numbers, keepers[chosen], kinds[chosen], shares[chosen]))
    if len(parts) == 1:
        return own
    joined = [np.concatenate([getattr(part, name) for part in parts]) for name in _Members.__dataclass_fields__]
    order = np.argsort(joined[0], kind="stable")
    return _Members(*(column[order] for column in joined))


def _orders_of(task: ClusterTask, numbers: Numbers) -> tuple[Numbers, NDArray[np.uint64], Numbers]:
    """Level, id and size of documents, ascending by number; one group's is held at a time."""
    bounds = np.append(np.searchsorted(numbers, np.array(task.group_starts, np.int64)), len(numbers))
    levels, sizes = np.zeros(len(numbers), np.int64), np.zeros(len(numbers), np.int64)
    heads = np.zeros((len(numbers), 2), np.uint64)
    for group, scanned in enumerate(task.scanned):
        begin, end = bounds[group], bounds[group + 1]
        if begin == end:
            continue
        rows = numbers[begin:end] - task.group_starts[group]
        of_group = load_columns(scanned.order)
        levels[begin:end], heads[begin:end], sizes[begin:end] = (column[rows] for column in of_group)
    return levels, heads, sizes


def _first_of_words(members: _Members, own: Numbers, bins: Numbers) -> NDArray[np.bool_]:
    """Which documents, given in order of preference, are the first of their words in their part.

    None where all of the component have equal words: there is nothing to compare.
    """
    words, labels = members.words[own], members.labels[own]
    order = np.lexsort((np.arange(len(own)), bins, words))
    first = np.ones(len(own), bool)
    first[order[1:]] = (words[order[1:]] != words[order[:-1]]) | (bins[order[1:]] != bins[order[:-1]])
    found, component = np.unique(labels, return_inverse=True)
    classes = np.bincount(component, weights=words == members.numbers[own])
    # What follows by its address alone may have to be compared with those that stay.
    by_address = members.labels[members.kinds == URL]
    classes += np.bincount(np.searchsorted(found, by_address), minlength=len(found))
    compared: NDArray[np.bool_] = first & (classes[component] > 1)
    return compared


def _equal_to_previous(*columns: NDArray[np.generic]) -> NDArray[np.bool_]:
    tied = np.zeros(len(columns[0]), bool)
    if len(tied):
        tied[1:] = np.logical_and.reduce([column[1:] == column[:-1] for column in columns])
    return tied


def _begins(values: Numbers) -> Numbers:
    """Where runs of equal values begin."""
    return np.flatnonzero(np.append(True, values[1:] != values[:-1]))
