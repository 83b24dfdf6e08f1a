"""store-03: a listing shows what other writers did a moment ago."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from marin.storage import open_store
from tests.storage.backends import KINDS, store_of


@pytest.mark.parametrize("kind", KINDS)
def test_a_listing_shows_what_another_store_object_wrote_and_deleted(kind: str, tmp_path: Path) -> None:
    one = store_of(kind, tmp_path)
    other = open_store(one.url)
    assert one.list("folder") == []
    assert one.size("folder/a") is None
    other.create("folder/a", b"1")
    assert [info.key for info in one.list("folder")] == ["folder/a"]
    assert one.size("folder/a") == 1
    other.put("folder/a", b"longer")
    other.create("folder/below/b", b"2")
    assert [(info.key, info.size) for info in one.list("folder")] == [("folder/a", 6), ("folder/below/b", 1)]
    other.delete("folder/a")
    assert [info.key for info in one.list("folder")] == ["folder/below/b"]
    assert not one.exists("folder/a")


def test_a_listing_shows_what_another_process_wrote_and_deleted(tmp_path: Path) -> None:
    store = open_store(tmp_path)

    def elsewhere(action: str) -> None:
        code = f"from marin.storage import open_store; open_store({str(tmp_path)!r}).{action}"
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)

    assert store.list("folder") == []
    elsewhere("create('folder/a', b'1')")
    assert [info.key for info in store.list("folder")] == ["folder/a"]
    elsewhere("delete('folder/a')")
    assert store.list("folder") == []
    assert not store.exists("folder/a")
