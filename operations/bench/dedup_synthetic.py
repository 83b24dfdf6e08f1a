"""Made-up short documents of the dedup benchmark, as many as are asked for.

A tenth are near copies of one text; half are copies in clusters of Zipf-sized numbers (the n-th has 1/n of the
largest's); the others are alone. Three of four copies have one of their last three words replaced, so that most bands
see them as copies, and the others are exact.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from marin.data.filtering.words import mix

WORDS = 40
VOCABULARY = 50_000
SEED = 0


def cluster_sizes(documents: int) -> NDArray[np.int64]:
    """Documents of each cluster, those that are alone included; the first is the giant one."""
    giant, clustered = documents // 10, documents // 2
    rest = documents - giant - clustered
    ranks = np.arange(1, documents + 1, dtype=np.float64)
    sizes = np.maximum(2, np.floor(0.1 * clustered / ranks)).astype(np.int64)
    sizes = sizes[: int(np.searchsorted(np.cumsum(sizes), clustered)) + 1]
    sizes[-1] -= int(sizes.sum()) - clustered
    sizes = sizes[sizes > 0]
    return np.concatenate([[giant], sizes, np.ones(rest, np.int64)])


def documents(count: int) -> Iterator[tuple[str, str]]:
    """Ids and texts, in an order that has nothing to do with the clusters."""
    draw = np.random.default_rng(SEED)
    vocabulary = np.array([f"w{number:05x}" for number in range(VOCABULARY)])
    sizes = cluster_sizes(count)
    cluster = np.repeat(np.arange(len(sizes)), sizes)
    alone = np.repeat(sizes == 1, sizes)
    order = draw.permutation(count)
    for start in range(0, count, 1000):
        chosen = order[start : start + 1000]
        # The words of a cluster's text follow from its number.
        seeds = cluster[chosen, None] * WORDS + np.arange(WORDS)
        words = (mix(seeds.astype(np.uint64)) % np.uint64(VOCABULARY)).astype(np.int64)
        changed = (draw.random(len(chosen)) < 0.75) & ~alone[chosen]
        places = draw.integers(WORDS - 3, WORDS, len(chosen))
        words[np.flatnonzero(changed), places[changed]] = draw.integers(0, VOCABULARY, int(changed.sum()))
        for number, text in zip(range(start, start + len(chosen)), vocabulary[words], strict=True):
            yield f"{number:010d}", " ".join(text.tolist())
