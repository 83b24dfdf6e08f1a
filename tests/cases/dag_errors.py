"""Exceptions that cannot travel between processes as objects."""

from __future__ import annotations

import threading

from marin.execution import step
from tests.execution.graphs import Text


class NeedsKeywords(Exception):
    """Cannot be rebuilt from its arguments."""

    def __init__(self, *, shard: int, reason: str) -> None:
        super().__init__(f"shard {shard}: {reason}")


class HoldsLock(Exception):
    """Cannot be pickled."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lock = threading.Lock()


@step("dag04/raising", version="1")
def raising(kind: str) -> Text:
    """Raise one of them."""
    if kind == "keywords":
        raise NeedsKeywords(shard=7, reason="no header")
    if kind == "lock":
        raise HoldsLock("holds a lock")
    if kind == "local":

        class DefinedInside(Exception):
            pass

        raise DefinedInside("defined in a function")
    if kind == "huge":
        raise ValueError("x" * 5_000_000 + " the end")
    return Text(text=kind)
