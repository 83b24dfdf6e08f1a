"""Connected components of a graph whose nodes are numbers: in memory, and over files with bounded memory.

The label of a component is its least node, whatever the order and the grouping of the edges.

Imports numpy; import this module inside step bodies only.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from marin.data.filtering.words import mix
from marin.execution import Intermediate, Run, current_run

Nodes = NDArray[np.int64]

_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def connected(one: Nodes, other: Nodes, count: int) -> Nodes:
    """The least node of each node's component; takes about 55 bytes an edge beside the edges themselves.

    Args:
        one: an end of each edge, from 0 up to ``count``.
        other: the other end.
        count: number of nodes.

    Raises:
        ValueError: there are more nodes or edges than 32 bits count; `connected_partitioned` takes them.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if max(count, len(one)) >= 2**31:
        raise ValueError(f"connected got {count} nodes and {len(one)} edges; use connected_partitioned from 2**31 on")
    graph = coo_array((np.ones(len(one), np.int8), (one, other)), shape=(count, count))
    _, component = connected_components(graph, directed=False)
    least = np.full(count, count, np.int64)
    np.minimum.at(least, component, np.arange(count))
    label: Nodes = least[component]
    return label


def pack_pairs(first: Nodes, second: Nodes) -> bytes:
    """Two arrays of equal length as the bytes of a file: edges, or nodes with their labels."""
    return _pack(np.stack([first, second]))


def unpack_pairs(data: bytes) -> tuple[Nodes, Nodes]:
    """What `pack_pairs` packed.

    Raises:
        ValueError: the bytes are something else.
    """
    first, second = _unpack(data)
    return first, second


def _pack(values: Nodes) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values.astype("<i8", copy=False), allow_pickle=False)
    return stream.getvalue()


def _unpack(data: bytes) -> Nodes:
    values: Nodes = np.load(io.BytesIO(data), allow_pickle=False)
    return values


def owner(nodes: Nodes, partitions: int) -> Nodes:
    """The partition that a node's label is kept in."""
    return (mix(nodes.astype(np.uint64)) % np.uint64(partitions)).astype(np.int64)


def connected_partitioned(run: Run, edges: Sequence[Intermediate], partitions: int) -> list[Intermediate]:
    """Label the nodes of a graph that does not fit in memory.

    Large-star and small-star take turns until every edge ties a node to the least one of its component (Kiveris et al.
    2014, Connected Components in MapReduce and Beyond). Written per edge {a < b}, with m(x) the least of x and its
    neighbours, large-star makes it {m(a), b}; small-star makes it {m(b), a}, and leaves it when a = m(b). So an edge
    never becomes two.

    Edges are spread by a hash of both ends, not gathered at their nodes: the edges of a star of millions lie in all
    parts alike. Only least neighbours are gathered, of which each part knows one for a node. A task holds its share
    1/``partitions`` of the edges, or of the nodes, whatever the degrees are; at most 200 bytes for each edge of it.

    Args:
        run: the run of the step's body.
        edges: files of `pack_pairs`, in any order; an edge may occur many times, and tie a node to itself.
        partitions: number of parts that edges and nodes are dealt out to; more parts, less memory for each.

    Returns:
        For each partition a file of `pack_pairs`: the nodes of it that have an edge to another node, ascending, and
        the label of each. `owner` tells which partition a node is in.
    """
    if partitions < 1:
        raise ValueError(f"partitions is {partitions}; it must be at least 1")
    spread = run.map(_spread, [_Spread(file, number, partitions) for number, file in enumerate(edges)])
    parts = [tuple(pieces[part] for pieces in spread) for part in range(partitions)]
    answers: list[tuple[Intermediate, ...]] = [() for _ in parts]
    turns: Iterable[_Turn] = itertools.chain(["count"], itertools.cycle(["large-star", "small-star"]))
    for number, turn in enumerate(turns):
        counted = run.map(
            _rewrite,
            [
                _Rewrite(part, number, turn, pieces, told, partitions)
                for part, (pieces, told) in enumerate(zip(parts, answers, strict=True))
            ],
        )
        asked = [tuple(one.least[part] for one in counted) for part in range(partitions)]
        if number and not any(one.loose for one in counted):
            return run.map(_label, [_Gather(part, number, files) for part, files in enumerate(asked)])
        gathered = run.map(_gather, [_Gather(part, number, files) for part, files in enumerate(asked)])
        parts = [(one.edges,) for one in counted]
        answers = [tuple(of_partition[part] for of_partition in gathered) for part in range(partitions)]
    raise AssertionError("turns never end")


_Turn = Literal["count", "large-star", "small-star"]


@dataclass(frozen=True)
class _Spread:
    """One file of edges to deal out."""

    edges: Intermediate
    number: int
    partitions: int


@dataclass(frozen=True)
class _Rewrite:
    """A part of the edges, and what to make of it.

    Attributes:
        part: number of the part.
        round: number of the round.
        turn: what is done to the edges before their least neighbours are counted.
        edges: the files that hold them.
        answers: for each partition of nodes, the least neighbours of the part's nodes that lie there.
        partitions: number of parts.
    """

    part: int
    round: int
    turn: _Turn
    edges: tuple[Intermediate, ...]
    answers: tuple[Intermediate, ...]
    partitions: int


@dataclass(frozen=True)
class _Rewritten:
    """A part of the edges after a turn.

    Attributes:
        edges: the file that holds them.
        least: for each partition of nodes, those of the part that lie there, with their least neighbour in the part.
        loose: edges that did not tie a node to the least one of a finished star before the turn.
    """

    edges: Intermediate
    least: tuple[Intermediate, ...]
    loose: int


@dataclass(frozen=True)
class _Gather:
    """A partition of the nodes: what each part of the edges knows of them."""

    partition: int
    round: int
    least: tuple[Intermediate, ...]


def _spread(task: _Spread) -> list[Intermediate]:
    """Deal out the edges of a file, each once, by a hash of both ends."""
    low, high = _distinct(*_ordered(*unpack_pairs(current_run().load_intermediate(task.edges))))
    part = owner((mix(low.astype(np.uint64)) * _FACTOR + high.astype(np.uint64)).astype(np.int64), task.partitions)
    return [
        current_run().store_intermediate(
            f"components/spread/{task.number:05d}-{number:05d}.npy",
            pack_pairs(low[part == number], high[part == number]),
        )
        for number in range(task.partitions)
    ]


def _rewrite(task: _Rewrite) -> _Rewritten:
    """Take a turn with a part of the edges, and count the least neighbours that they give."""
    run = current_run()
    pieces = [np.zeros((2, 0), np.int64), *(_unpack(run.load_intermediate(file)) for file in task.edges)]
    low, high = _distinct(*np.concatenate(pieces, axis=1))
    loose = 0
    if task.turn != "count":
        nodes, at_low, at_high = _numbered(low, high)
        least = _answers(run, task, nodes)
        of_low, of_high = least[at_low], least[at_high]
        loose = int(np.count_nonzero((of_low != low) | (of_high != low)))
        if task.turn == "large-star":
            low = of_low
        else:
            low, high = of_high, np.where(of_high == low, high, low)
        low, high = _distinct(low, high)
    nodes, _, at_high = _numbered(low, high)
    least = nodes.copy()
    np.minimum.at(least, at_high, low)
    place = f"components/{task.round:03d}/{task.part:05d}"
    partition = owner(nodes, task.partitions)
    return _Rewritten(
        edges=run.store_intermediate(f"{place}-edges.npy", pack_pairs(low, high)),
        least=tuple(
            run.store_intermediate(
                f"{place}-least-{number:05d}.npy", pack_pairs(nodes[partition == number], least[partition == number])
            )
            for number in range(task.partitions)
        ),
        loose=loose,
    )


def _answers(run: Run, task: _Rewrite, nodes: Nodes) -> Nodes:
    """The least neighbour of each node of a part."""
    least = np.empty_like(nodes)
    partition = owner(nodes, task.partitions)
    for number, file in enumerate(task.answers):
        # The nodes of a part are asked for in ascending order, and answered in the same.
        least[partition == number] = _unpack(run.load_intermediate(file))
    return least


def _gather(task: _Gather) -> list[Intermediate]:
    """The least neighbours of a partition's nodes, for each part that knows some of them."""
    run = current_run()
    nodes, least = _least_of_all(run, task)
    answers = []
    for part, file in enumerate(task.least):
        asked, _ = unpack_pairs(run.load_intermediate(file))
        answer = least[np.searchsorted(nodes, asked)]
        name = f"components/{task.round:03d}/{task.partition:05d}-answer-{part:05d}.npy"
        answers.append(run.store_intermediate(name, _pack(answer)))
    return answers


def _label(task: _Gather) -> Intermediate:
    """The labels of a partition's nodes, once the components are stars: the least neighbour is the label."""
    run = current_run()
    return run.store_intermediate(f"components/labels/{task.partition:05d}.npy", pack_pairs(*_least_of_all(run, task)))


def _least_of_all(run: Run, task: _Gather) -> tuple[Nodes, Nodes]:
    """The nodes of a partition, ascending, with the least neighbour that any part knows. One file is held at a time."""
    nodes, least = np.zeros(0, np.int64), np.zeros(0, np.int64)
    for file in task.least:
        more, known = unpack_pairs(run.load_intermediate(file))
        both = np.concatenate([nodes, more])
        nodes, at = np.unique(both, return_inverse=True)
        known = np.concatenate([least, known])
        least = nodes.copy()
        np.minimum.at(least, at, known)
    return nodes, least


def _ordered(one: Nodes, other: Nodes) -> tuple[Nodes, Nodes]:
    """Edges with the lesser end first, without those that tie a node to itself."""
    low, high = np.minimum(one, other), np.maximum(one, other)
    return low[low != high], high[low != high]


def _distinct(low: Nodes, high: Nodes) -> tuple[Nodes, Nodes]:
    """Edges once each, sorted by their lesser end."""
    order = np.lexsort((high, low))
    low, high = low[order], high[order]
    first = np.ones(len(low), bool)
    first[1:] = (low[1:] != low[:-1]) | (high[1:] != high[:-1])
    return low[first], high[first]


def _numbered(low: Nodes, high: Nodes) -> tuple[Nodes, Nodes, Nodes]:
    """The nodes of edges, ascending, and the places of both ends among them."""
    nodes, places = np.unique(np.concatenate([low, high]), return_inverse=True)
    return nodes, places[: len(low)], places[len(low) :]
