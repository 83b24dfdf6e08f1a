"""After how many shards a worker ends, so that what shards leave behind in its memory stays below a limit."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

MANY = 64
"""Shards after which it does not matter any more that a worker is started anew."""
CHANCES = 4
"""Shards for each worker within which one that has grown takes one that ends it, nearly always."""
ROOM = 1.5
"""A limit below that multiple of what a worker holds after its first shard leaves no room: it counts as that much."""


@dataclass
class _Worker:
    """What a worker held after its first shard, in bytes, and how many it has done."""

    first: int
    shards: int


class WorkerMemory:
    """The memory that the workers of one map report; they cannot be told apart when work is handed out.

    When one is over its limit, shards are sent that end their worker at once, until it took one of them (or chance kept
    it from that for long). From then on workers end after as many shards as fit. A function that leaves nothing behind
    never ends its worker.
    """

    def __init__(self) -> None:
        self._workers: dict[Hashable, _Worker] = {}
        self._grown: set[Hashable] = set()
        self._calls = 0
        self._to_end = 0

    def weigh(self, worker: Hashable, held: int, limit: float, calls: int) -> None:
        """A worker holds so many bytes after a shard of the function that ends it after so many calls."""
        one = self._workers.setdefault(worker, _Worker(held, 0))
        one.shards += 1
        limit = max(limit, ROOM * one.first)
        if calls == 1:
            self._grown.discard(worker)
        if held <= limit or calls == 1:
            return
        growth = (held - one.first) / (one.shards - 1)
        fitting = _power_of_two(1 + int((limit - one.first) / growth))
        self._calls = min(self._calls or MANY, fitting)
        if not calls and worker not in self._grown:
            self._grown.add(worker)
            self._to_end = CHANCES * len(self._workers)

    def calls_of_next(self) -> int:
        """After how many calls of its function the next shard's worker ends; 0 for never."""
        if self._grown and self._to_end:
            self._to_end -= 1
            return 1
        return self._calls


def _power_of_two(number: int) -> int:
    """The largest power of two that is not above a number, up to `MANY`: each is another function on Ray."""
    return int(min(1 << (number.bit_length() - 1), MANY))
