"""The store in memory, which threads share."""

from __future__ import annotations

import threading
import uuid

from marin.storage import open_store


def test_threads_list_while_others_write() -> None:
    store = open_store(f"memory://{uuid.uuid4().hex}")
    for number in range(2_000):
        store.put(f"seen/{number}", b"")
    wrong: list[BaseException] = []
    done = threading.Event()

    def look() -> None:
        try:
            while not done.is_set():
                assert len(store.list("seen")) >= 2_000
                assert sum(len(page) for page in store.pages("seen")) >= 2_000
        except BaseException as error:
            wrong.append(error)

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    for number in range(2_000, 6_000):
        store.put(f"seen/{number}", b"")
    done.set()
    for reader in readers:
        reader.join()
    assert wrong == []
