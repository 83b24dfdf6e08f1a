"""All records of a prefix one after the other, read ahead of who looks at them, and none kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from marin.execution.failures import StepError
from marin.execution.records import Record, load_record
from marin.storage import Store

AHEAD = 32
"""Records that are being read, or wait for who looks at them."""


def stream_records(store: Store, keys: Iterable[str], ahead: int = AHEAD) -> Iterator[tuple[str, Record | StepError]]:
    """(key, record) in the order of the keys; the error in the place of a record that is damaged or not there."""

    def load(key: str) -> Record | StepError:
        try:
            return load_record(store, key)
        except StepError as error:
            return error

    waiting: deque[tuple[str, Future[Record | StepError]]] = deque()
    with ThreadPoolExecutor(ahead, thread_name_prefix="marin-records") as pool:
        try:
            for key in keys:
                waiting.append((key, pool.submit(load, key)))
                if len(waiting) >= ahead:
                    first, future = waiting.popleft()
                    yield first, future.result()
            while waiting:
                first, future = waiting.popleft()
                yield first, future.result()
        finally:
            for _, future in waiting:
                future.cancel()
