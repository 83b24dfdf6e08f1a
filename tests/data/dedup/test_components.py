"""Connected components against union-find, in memory and over files."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.data.dedup.components import connected, connected_partitioned, owner, pack_pairs, unpack_pairs
from marin.execution import Artifact, Intermediate, current_run, materialise, step

Edges = list[tuple[int, int]]


def union_find(edges: Edges, count: int) -> list[int]:
    """The least node of each node's component, one edge after the other."""
    parent = list(range(count))

    def root(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for one, other in edges:
        low, high = sorted((root(one), root(other)))
        parent[high] = low
    return [root(node) for node in range(count)]


def random_edges(nodes: int, edges: int, seed: int) -> Edges:
    draw = np.random.default_rng(seed)
    return [(int(one), int(other)) for one, other in draw.integers(0, nodes, (edges, 2))]


def chain(length: int, seed: int) -> Edges:
    """A chain through all nodes in an order that has nothing to do with their numbers."""
    order = np.random.default_rng(seed).permutation(length).tolist()
    return list(itertools.pairwise(order))


def columns(edges: Edges) -> tuple[np.ndarray, np.ndarray]:
    ends = np.array(edges, np.int64).reshape(-1, 2)
    return ends[:, 0], ends[:, 1]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.integers(0, 90), st.integers(0, 2**32))
def test_components_in_memory_are_those_of_union_find(nodes: int, edges: int, seed: int) -> None:
    drawn = random_edges(nodes, edges, seed)
    assert connected(*columns(drawn), nodes).tolist() == union_find(drawn, nodes)


@pytest.mark.parametrize("edges", [chain(50_000, 1), [(at, at + 1) for at in range(50_000)]])
def test_a_long_chain_in_memory_is_one_component(edges: Edges) -> None:
    assert not connected(*columns(edges), 50_001)[: len(edges) + 1].any()


def test_the_ends_given_are_left_as_they_are() -> None:
    one, other = columns([(3, 1), (1, 2), (0, 0)])
    connected(one, other, 4)
    assert (one.tolist(), other.tolist()) == ([3, 1, 0], [1, 2, 0])


@dataclass(frozen=True)
class Graph:
    """Files of edges."""

    files: tuple[tuple[tuple[int, int], ...], ...]
    partitions: int


@dataclass(frozen=True, kw_only=True)
class Labels(Artifact):
    """The nodes and labels of each partition."""

    nodes: tuple[tuple[int, ...], ...]
    labels: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Named:
    """A file of edges to store."""

    name: str
    edges: tuple[tuple[int, int], ...]


def store_edges(file: Named) -> Intermediate:
    """The edges as an intermediate file."""
    return current_run().store_intermediate(file.name, pack_pairs(*columns(list(file.edges))))


@step("test/components", version="1", fans_out=True)
def label_components(graph: Graph) -> Labels:
    """The labels of a graph in files."""
    run = current_run()
    files = run.map(store_edges, [Named(f"{at}.npy", edges) for at, edges in enumerate(graph.files)])
    labelled = [
        unpack_pairs(run.load_intermediate(file)) for file in connected_partitioned(run, files, graph.partitions)
    ]
    return Labels(
        nodes=tuple(tuple(nodes.tolist()) for nodes, _ in labelled),
        labels=tuple(tuple(labels.tolist()) for _, labels in labelled),
    )


def labelled(place: Path, edges: Edges, partitions: int, files: int = 3) -> dict[int, int]:
    """The labels that the partitioned form finds for nodes with edges."""
    graph = Graph(tuple(tuple(edges[at::files]) for at in range(files)), partitions)
    found = materialise(label_components(graph), prefix=str(place))
    assert len(found.nodes) == partitions
    for partition, nodes in enumerate(found.nodes):
        assert list(nodes) == sorted(set(nodes))
        assert (owner(np.array(nodes, np.int64), partitions) == partition).all()
    return {
        node: label
        for nodes, labels in zip(found.nodes, found.labels, strict=True)
        for node, label in zip(nodes, labels, strict=True)
    }


def rounds(place: Path) -> int:
    """Rounds that the last partitioned run took, from the files that it left."""
    return 1 + max(int(path.parent.name) for path in place.rglob("*-edges.npy"))


def expected(edges: Edges, count: int) -> dict[int, int]:
    tied = {node for one, other in edges if one != other for node in (one, other)}
    return {node: label for node, label in enumerate(union_find(edges, count)) if node in tied}


@pytest.mark.parametrize("seed", range(3))
def test_components_over_files_are_those_of_union_find_for_any_number_of_partitions(seed: int, tmp_path: Path) -> None:
    edges = random_edges(120, 30 + 50 * seed, seed)
    for partitions in (1, 4):
        assert labelled(tmp_path / str(partitions), edges, partitions) == expected(edges, 120)


def test_the_order_and_the_files_of_edges_change_nothing(tmp_path: Path) -> None:
    edges = random_edges(200, 150, 9)
    turned = [(other, one) for one, other in reversed(edges)] + edges[:40]
    assert labelled(tmp_path / "a", edges, 3, files=1) == labelled(tmp_path / "b", turned, 3, files=4)


@pytest.mark.parametrize("edges", [chain(4000, 3), [(at, at + 1) for at in range(4000)]], ids=["shuffled", "sorted"])
def test_a_chain_over_files_takes_rounds_like_its_logarithm(edges: Edges, tmp_path: Path) -> None:
    found = labelled(tmp_path, edges, 2)
    assert len(found) == len(edges) + 1 and set(found.values()) == {0}
    assert rounds(tmp_path) <= 30


def test_a_star_of_many_is_spread_over_all_parts_and_done_in_few_rounds(tmp_path: Path) -> None:
    leaves, partitions = 20_000, 5
    # The centre is the largest node, so that every edge has to be turned around.
    edges = [(leaf, leaves) for leaf in range(leaves)]
    found = labelled(tmp_path, edges, partitions)
    assert len(found) == leaves + 1 and set(found.values()) == {0}
    assert rounds(tmp_path) <= 5
    files = [*tmp_path.rglob("*-*.npy"), *tmp_path.rglob("labels/*.npy")]
    sizes = [path.stat().st_size for path in files]
    assert max(sizes) < 1.5 * 16 * leaves / partitions


def test_no_edges_give_no_labels(tmp_path: Path) -> None:
    assert labelled(tmp_path / "none", [], 2, files=1) == {}
    assert labelled(tmp_path / "no-files", [], 2, files=0) == {}
    assert labelled(tmp_path / "loops", [(3, 3), (5, 5)], 2) == {}


def test_numbers_as_large_as_identifiers_are_nodes_too(tmp_path: Path) -> None:
    large = 2**62
    assert labelled(tmp_path, [(large, large - 7), (large - 7, 11)], 3) == {large: 11, large - 7: 11, 11: 11}


def test_a_file_that_is_none_of_pairs_is_refused() -> None:
    with pytest.raises(ValueError):
        unpack_pairs(b"no array")
    with pytest.raises(ValueError):
        unpack_pairs(pack_pairs(*columns([(1, 2)]))[:-3])
