"""store-01: special characters in object names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.storage.backends import KINDS, SPECIAL_NAMES, store_of


@pytest.mark.parametrize("kind", KINDS)
def test_each_special_name_is_written_found_read_listed_and_deleted_alone(kind: str, tmp_path: Path) -> None:
    store = store_of(kind, tmp_path)
    left = set(SPECIAL_NAMES)
    for name in SPECIAL_NAMES:
        store.create(f"folder/{name}", f"content of {name}".encode())
    for name in SPECIAL_NAMES:
        key = f"folder/{name}"
        assert store.exists(key)
        assert store.read(key) == f"content of {name}".encode()
        with store.open(key) as stream:
            assert stream.read() == f"content of {name}".encode()
        assert [info.key for info in store.list("folder")].count(key) == 1
        store.delete(key)
        left.remove(name)
        assert not store.exists(key)
        assert {info.key for info in store.list("folder/")} == {f"folder/{other}" for other in left}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["brackets[1]", "star*", "question?", "hash#1", "50%"])
def test_a_folder_with_a_special_name_is_the_same_place_with_and_without_a_slash(
    kind: str, name: str, tmp_path: Path
) -> None:
    store = store_of(kind, tmp_path)
    store.create(f"{name}/file", b"1")
    store.create("brackets1/file", b"2")
    store.create("star-other/file", b"3")
    assert [info.key for info in store.list(name)] == [info.key for info in store.list(f"{name}/")] == [f"{name}/file"]
