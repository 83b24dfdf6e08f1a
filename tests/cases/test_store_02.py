"""store-02: folder operations stay inside the folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.backends import KINDS, store_of

INSIDE = ["run-1/a.txt", "run-1/b/c.txt"]
BESIDE = ["other/run-1/a.txt", "run-1-old/a.txt", "run-1.json", "run-10/a.txt"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("folder", ["run-1", "run-1/"])
def test_listing_and_emptying_a_folder_touches_only_what_lies_inside(kind: str, folder: str, tmp_path: Path) -> None:
    store = store_of(kind, tmp_path)
    for key in INSIDE + BESIDE:
        store.create(key, key.encode())
    found = [info.key for info in store.list(folder)]
    assert found == INSIDE
    for key in found:
        store.delete(key)
    assert store.list(folder) == []
    assert [info.key for info in store.list()] == BESIDE
    assert all(store.read(key) == key.encode() for key in BESIDE)
