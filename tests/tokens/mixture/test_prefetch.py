from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from marin.tokens.mixture.config import LoaderConfig
from marin.tokens.mixture.loader import MixtureLoader
from marin.tokens.mixture.packing import Batch, pack
from marin.tokens.mixture.prefetch import Prefetcher
from tests.tokens.mixture.test_loader import LENGTH, TOTAL, mixture, rows_of  # noqa: F401  a fixture


class Slow:
    """A source whose reads take a while, some of them long."""

    def __init__(self, loader: MixtureLoader, seconds: float, every: int = 1) -> None:
        self.loader, self.seconds, self.every = loader, seconds, every
        self.asked: list[tuple[int, int]] = []
        self.lock = threading.Lock()

    def batch(self, first: int, count: int) -> Batch:
        with self.lock:
            self.asked.append((first, count))
            slow = len(self.asked) % self.every == 0
        time.sleep(self.seconds if slow else 0)
        return self.loader.batch(first, count)


def requests(ranks: int = 1, rank: int = 0, batch: int = 8, first: int = 0):
    part = batch // ranks
    return ((place + rank * part, part) for place in range(first, TOTAL - batch + 1, batch))


@pytest.mark.parametrize("config", [LoaderConfig(0), LoaderConfig(1, 1), LoaderConfig(5, 3)])
def test_what_is_read_ahead_is_what_is_asked_for(mixture, config: LoaderConfig):  # noqa: F811
    loader = MixtureLoader(mixture, LENGTH, seed=3, total_sequences=TOTAL)
    with Prefetcher(loader, requests(), config) as source:
        for first, count in requests():
            assert rows_of(source.batch(first, count)) == rows_of(loader.batch(first, count))
        figures = source.take()
    assert figures.tokens == TOTAL * LENGTH
    assert figures.unexpected == 0
    assert source.take().tokens == 0


def test_a_batch_out_of_turn_is_right_and_counted(mixture):  # noqa: F811
    loader = MixtureLoader(mixture, LENGTH, seed=3, total_sequences=TOTAL)
    with Prefetcher(loader, requests(), LoaderConfig(3)) as source:
        assert rows_of(source.batch(100, 5)) == rows_of(loader.batch(100, 5))
        assert rows_of(source.batch(0, 8)) == rows_of(loader.batch(0, 8))
        assert source.take().unexpected == 1


def test_reading_no_further_ahead_than_it_says(mixture):  # noqa: F811
    slow = Slow(MixtureLoader(mixture, LENGTH, seed=3, total_sequences=TOTAL), 0.0)
    with Prefetcher(slow, requests(), LoaderConfig(3, 1)) as source:
        source.batch(0, 8)
        deadline = time.monotonic() + 5
        while len(slow.asked) < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05)
        assert len(slow.asked) == 4


def test_no_rank_of_a_gang_waits_for_reads_that_fit_into_its_steps(mixture):  # noqa: F811
    """Every fourth read of every rank takes four steps' time: read ahead, no step of any rank waits for it."""
    step_seconds, ranks = 0.03, 4
    waited = {}
    for ahead in (0, 6):
        sources = []
        for rank in range(ranks):
            loader = MixtureLoader(mixture, LENGTH, seed=3, total_sequences=TOTAL)
            config = LoaderConfig(ahead, 3)
            sources.append(Prefetcher(Slow(loader, 3 * step_seconds, every=4), requests(ranks, rank), config))
        time.sleep(10 * step_seconds)
        stalls = []
        for place in range(0, 8 * 20, 8):
            started = time.perf_counter()
            for rank, source in enumerate(sources):
                source.batch(place + rank * 2, 2)
            stalls.append(max(source.take().stall_seconds for source in sources))
            time.sleep(max(0.0, step_seconds - (time.perf_counter() - started)))
        waited[ahead] = sum(stalls)
        for source in sources:
            source.close()
    assert waited[0] > 5 * 3 * step_seconds * 0.9
    assert waited[6] < waited[0] / 3


def test_an_error_of_a_read_reaches_the_one_who_asked(mixture):  # noqa: F811
    loader = MixtureLoader(mixture, LENGTH, seed=3, total_sequences=TOTAL)
    with Prefetcher(loader, iter([(0, 2), (TOTAL, 2)]), LoaderConfig(2)) as source:
        assert np.array_equal(source.batch(0, 2).tokens, loader.batch(0, 2).tokens)
        with pytest.raises(IndexError, match="not within the run"):
            source.batch(TOTAL, 2)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [({"ahead": -1}, "ahead is -1"), ({"threads": 0}, "threads is 0"), ({"cache_bytes": 5}, "cache_bytes is 5")],
)
def test_an_impossible_loader_is_refused(arguments: dict, text: str):
    with pytest.raises(ValueError, match=f"loader.{text}"):
        LoaderConfig(**arguments)


def test_an_empty_batch_has_no_rows():
    assert pack([], 4, 0).tokens.shape == (0, 4)
