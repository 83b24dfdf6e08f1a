"""How long a store that is in trouble is asked again.

The clients have retries of their own, each with other numbers and for other errors: botocore up to five times, s3fs
five times around that, gcsfs six times over half a minute. They are switched off, and each single request is asked
again here, so that a part of a big upload or a range of a stream is repeated and not the whole of it.
"""

from __future__ import annotations

import asyncio
import enum
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from marin.storage.store import StoreUnavailable, StoreUnreachable

T = TypeVar("T")


class Trouble(enum.Enum):
    """What may pass by itself."""

    BUSY = "busy"
    """It answered: too many requests, or a failure on its side. Or the connection broke in the middle."""
    SILENT = "silent"
    """No connection could be made at all."""


@dataclass(frozen=True)
class Patience:
    """Exponential back-off with jitter, within a budget of time for each request.

    budget_seconds: how long a store in trouble is asked again, counted from the first attempt.
    silence_seconds: the same for a store that has not answered anything yet: a wrong address or no network at all
        should be said at once.
    first_seconds, longest_seconds: the pause after the first attempt, and the longest one; each is doubled from the
        one before and shortened by up to a half at random, so that many workers do not come back together.
    """

    budget_seconds: float = 60.0
    silence_seconds: float = 4.0
    first_seconds: float = 0.25
    longest_seconds: float = 12.0

    def pause(self, attempt: int) -> float:
        """Seconds to wait after the `attempt`-th attempt, from 1."""
        longest = min(self.longest_seconds, self.first_seconds * 2.0 ** min(attempt - 1, 30))
        return longest * random.uniform(0.5, 1.0)


class Asking:
    """Asks one store again, and knows whether it has ever answered."""

    def __init__(self, patience: Patience, trouble_of: Callable[[BaseException], Trouble | None]) -> None:
        self.patience = patience
        self.trouble_of = trouble_of
        self.heard = False

    async def __call__(self, request: Callable[[int], Awaitable[T]], where: str) -> T:
        """What `request(attempt)` returns, attempts counted from 1.

        Its error is raised as it is when it will not pass by itself.

        Raises:
            StoreUnavailable: the trouble did not pass within the budget; StoreUnreachable when nothing ever answered.
        """
        start = time.monotonic()
        attempt = 0
        while True:
            attempt += 1
            try:
                result = await request(attempt)
            except Exception as error:
                trouble = self.trouble_of(error)
                self.heard = self.heard or trouble is Trouble.BUSY
                if trouble is None:
                    raise
                waiting = trouble is Trouble.BUSY or self.heard
                budget = self.patience.budget_seconds if waiting else self.patience.silence_seconds
                pause = self.patience.pause(attempt)
                spent = time.monotonic() - start
                if spent + pause > budget:
                    raise (StoreUnavailable if waiting else StoreUnreachable)(
                        f"{where} gives no answer that can be used ({_text(error)}; "
                        f"asked {attempt} times in {spent:.0f} s); look at the network, at the endpoint that is set "
                        "and at the service's own status page, and start the same command again later: "
                        "it goes on from what is stored"
                    ) from error
            else:
                self.heard = True
                return result
            await asyncio.sleep(pause)


def _text(error: BaseException) -> str:
    """One line about a client's error."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
