"""Reading batches before they are asked for, and telling how long a rank had to wait for them."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol

from marin.tokens.mixture.config import LoaderConfig
from marin.tokens.mixture.packing import Batch

Request = tuple[int, int]
"""(first sequence, number of sequences)."""


class BatchSource(Protocol):
    """Where batches come from: a pure function of their place, which several threads may call at once."""

    def batch(self, first: int, count: int) -> Batch:
        """The sequences from ``first`` on."""


@dataclass(frozen=True)
class LoadFigures:
    """What reading cost since the figures were last taken.

    Attributes:
        tokens: tokens of the batches that were handed out.
        stall_seconds: wall time that was spent waiting for them.
        read_seconds: wall time that threads spent reading them.
        unexpected: batches that were asked for out of turn.
    """

    tokens: int
    stall_seconds: float
    read_seconds: float
    unexpected: int

    @property
    def tokens_per_s(self) -> float:
        """Tokens that one thread reads a second."""
        return self.tokens / self.read_seconds if self.read_seconds > 0 else 0.0


class Prefetcher:
    """A source whose next batches are read ahead, in threads. What is handed out is what the source gives.

    Args:
        source: where batches come from.
        requests: what will be asked for, in order.
        config: how far ahead, and in how many threads.
    """

    def __init__(self, source: BatchSource, requests: Iterator[Request], config: LoaderConfig) -> None:
        self._source = source
        self._requests = requests
        self._ahead = config.ahead
        self._pool = ThreadPoolExecutor(config.threads, thread_name_prefix="loader") if config.ahead else None
        self._waiting: deque[tuple[Request, Future[tuple[Batch, float]]]] = deque()
        self._tokens = self._unexpected = 0
        self._stall = self._read = 0.0
        self._fill()

    def batch(self, first: int, count: int) -> Batch:
        """The sequences from ``first`` on: at once when they were foreseen, otherwise read now and counted."""
        started = time.perf_counter()
        if self._waiting and self._waiting[0][0] == (first, count):
            _, future = self._waiting.popleft()
            self._fill()
            batch, seconds = future.result()
        else:
            self._unexpected += self._pool is not None
            batch, seconds = self._timed((first, count))
        self._stall += time.perf_counter() - started
        self._read += seconds
        self._tokens += batch.tokens.size
        return batch

    def take(self) -> LoadFigures:
        """The figures since the last call."""
        taken = LoadFigures(self._tokens, self._stall, self._read, self._unexpected)
        self._tokens = self._unexpected = 0
        self._stall = self._read = 0.0
        return taken

    def close(self) -> None:
        """End the threads; what they read is dropped."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._waiting.clear()

    def __enter__(self) -> Prefetcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _fill(self) -> None:
        if self._pool is None:
            return
        for request in itertools.islice(self._requests, self._ahead - len(self._waiting)):
            self._waiting.append((request, self._pool.submit(self._timed, request)))

    def _timed(self, request: Request) -> tuple[Batch, float]:
        started = time.perf_counter()
        return self._source.batch(*request), time.perf_counter() - started
