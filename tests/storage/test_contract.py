"""The contract of every store, on each back end that needs no server."""

from __future__ import annotations

import gc
import gzip
import hashlib
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from marin.storage import AlreadyExists, InvalidKey, MissingObject, ObjectInfo, Store, StoreError, open_store, split_url
from tests.storage.backends import KINDS, SPECIAL_NAMES, store_of


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return store_of(request.param, tmp_path)


def test_of_sixteen_racing_writers_one_wins_and_its_bytes_stay(store: Store) -> None:
    for turn in range(20):
        barrier = threading.Barrier(16)

        def attempt(number: int, turn: int = turn, barrier: threading.Barrier = barrier) -> bool:
            barrier.wait()
            try:
                store.create(f"race/{turn}", f"writer {number} ".encode() * 500)
            except AlreadyExists:
                return False
            return True

        with ThreadPoolExecutor(16) as pool:
            won = list(pool.map(attempt, range(16)))
        assert sum(won) == 1
        assert store.read(f"race/{turn}") == f"writer {won.index(True)} ".encode() * 500
    assert [info.key for info in store.list()] == sorted(f"race/{turn}" for turn in range(20))


def test_of_racing_processes_one_wins(tmp_path: Path) -> None:
    store, go = store_of("local", tmp_path), tmp_path / "go"
    commands = [
        [sys.executable, "-m", "tests.storage.backends", "race", store.url, "records/one", str(go), f"<{number}>"]
        for number in range(6)
    ]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    go.touch()
    won = [process.communicate(timeout=60)[0].strip() for process in processes]
    assert sorted(won) == ["0"] * 5 + ["1"]
    assert store.read("records/one") == f"<{won.index('1')}>".encode() * 1000


def test_a_reader_never_sees_a_part_of_an_object(store: Store) -> None:
    data = b"x" * 2_000_000
    seen: list[int] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            for info in store.list("records"):
                seen.extend((info.size, len(store.read(info.key))))

    watcher = threading.Thread(target=watch)
    watcher.start()
    for index in range(8):
        store.create(f"records/created-{index}", data)
        with store.writer(f"records/written-{index}") as stream:
            for start in range(0, len(data), 100_000):
                stream.write(data[start : start + 100_000])
    done.set()
    watcher.join(timeout=30)
    assert set(seen) <= {len(data)}


def test_what_was_created_is_read_back_and_is_not_created_again(store: Store) -> None:
    store.create("folder/key", b"first")
    with pytest.raises(AlreadyExists):
        store.create("folder/key", b"second")
    assert store.read("folder/key") == b"first"
    assert store.size("folder/key") == 5
    assert store.exists("folder/key")


def test_an_empty_object_is_an_object(store: Store) -> None:
    store.create("empty", b"")
    with store.writer("also/empty"):
        pass
    assert (store.size("empty"), store.read("also/empty")) == (0, b"")
    assert store.list() == [ObjectInfo("also/empty", 0), ObjectInfo("empty", 0)]
    with pytest.raises(AlreadyExists):
        store.create("empty", b"more")


def test_put_overwrites_whole(store: Store) -> None:
    store.put("beat", b"a longer first text")
    store.put("beat", b"short")
    assert store.read("beat") == b"short"
    assert store.size("beat") == 5


def test_a_writer_publishes_only_on_close_with_size_and_digest(store: Store) -> None:
    with store.writer("data/part") as stream:
        stream.write(b"abc")
        stream.write(memoryview(b"defg"))
        stream.write(bytearray(b"h"))
        assert store.size("data/part") is None
        assert store.list() == []
        assert stream.tell() == 8
    assert (stream.size, stream.sha256) == (8, hashlib.sha256(b"abcdefgh").hexdigest())
    assert store.read("data/part") == b"abcdefgh"
    stream.close()
    assert store.read("data/part") == b"abcdefgh"


def test_a_writer_publishes_nothing_after_an_exception(store: Store) -> None:
    stream = store.writer("data/part")

    def write_half() -> None:
        with stream:
            stream.write(b"x" * 100_000)
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        write_half()
    assert store.size("data/part") is None
    assert store.list() == []
    with pytest.raises(ValueError, match="closed"):
        stream.write(b"more")


def test_a_dropped_writer_publishes_nothing(store: Store) -> None:
    stream = store.writer("data/part")
    stream.write(b"x" * 100_000)
    del stream
    gc.collect()
    assert store.list() == []


def test_a_writer_serves_compressors_and_buffers(store: Store) -> None:
    with store.writer("data/part.gz") as stream, gzip.GzipFile(fileobj=stream, mode="wb", mtime=0) as packed:
        packed.write(b"text " * 10_000)
    assert gzip.decompress(store.read("data/part.gz")) == b"text " * 10_000
    assert stream.sha256 == hashlib.sha256(store.read("data/part.gz")).hexdigest()


def test_readers_seek_and_do_not_disturb_each_other(store: Store) -> None:
    store.create("digits", b"0123456789")
    with store.open("digits") as one, store.open("digits") as other:
        assert one.read(4) == b"0123"
        assert other.read(2) == b"01"
        one.seek(-3, 2)
        assert one.read() == b"789"
        assert other.read() == b"23456789"


def test_a_missing_object_is_said_to_be_missing(store: Store) -> None:
    store.create("folder/key", b"1")
    for key in ("nothing", "folder", "folder/other", "folder/key/below"):
        assert store.size(key) is None
        assert not store.exists(key)
        with pytest.raises(MissingObject, match=r"nothing lies under"):
            store.read(key)
        with pytest.raises(FileNotFoundError):
            store.open(key)
    assert store.list("nothing") == []
    store.delete("nothing")
    store.delete("nothing/at/all")


@pytest.mark.parametrize("key", ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a\0b"])
def test_a_key_that_could_leave_the_prefix_is_refused(store: Store, key: str) -> None:
    for action in (
        store.read,
        store.open,
        store.size,
        store.delete,
        store.writer,
        store.url_of,
        lambda bad: store.create(bad, b""),
        lambda bad: store.put(bad, b""),
    ):
        with pytest.raises(InvalidKey) as caught:
            action(key)
        assert repr(key) in str(caught.value)


def test_every_special_name_is_taken_literally(store: Store) -> None:
    for number, name in enumerate(SPECIAL_NAMES):
        if number % 2:
            store.create(name, name.encode())
        else:
            with store.writer(name) as stream:
                stream.write(name.encode())
    assert [info.key for info in store.list()] == sorted(SPECIAL_NAMES)
    for name in SPECIAL_NAMES:
        assert store.read(name) == name.encode()
        assert store.size(name) == len(name.encode())


def test_a_listing_shows_sizes_below_one_folder_sorted_by_key(store: Store) -> None:
    for key, size in {"b/2": 2, "b/1/x": 1, "a": 3, "b.json": 4, "bb/1": 5}.items():
        store.create(key, b"x" * size)
    assert store.list("b") == store.list("b/") == [ObjectInfo("b/1/x", 1), ObjectInfo("b/2", 2)]
    assert [info.key for info in store.list()] == ["a", "b.json", "b/1/x", "b/2", "bb/1"]
    assert store.list("a") == []


def test_folders_are_the_names_directly_below_that_hold_something(store: Store) -> None:
    for key in ("runs/b/plan", "runs/b/logs/1", "runs/a#1/plan", "runs/file", "runs-too/c/plan", "top"):
        store.create(key, b"x")
    assert store.folders("runs") == store.folders("runs/") == ("a#1", "b")
    assert store.folders("runs/b") == ("logs",)
    assert store.folders() == ("runs", "runs-too")
    assert store.folders("top") == store.folders("nothing") == ()


def test_a_listing_passes_a_page(tmp_path: Path) -> None:
    store = store_of("memory", tmp_path)
    for index in range(1_203):
        store.put(f"_steps/{index:05d}", b"")
    assert len(store.list("_steps")) == 1_203


def test_stores_pickle(store: Store) -> None:
    store.create("key", b"1")
    again = pickle.loads(pickle.dumps(store))
    assert again.read("key") == b"1"
    assert again.url_of("key") == store.url_of("key")


def test_the_self_test_passes_and_leaves_nothing(store: Store) -> None:
    store.check_writable()
    assert store.list() == []


def test_the_self_test_refuses_a_store_that_lets_two_writers_win(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "create", store.put)
    with pytest.raises(StoreError, match="create-if-absent"):
        store.check_writable()
    assert store.list() == []


def test_an_unwritable_prefix_is_an_error_with_the_way_out(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")
    for prefix in (file, file / "below", Path("/proc/marin")):
        with pytest.raises(StoreError) as caught:
            open_store(prefix).check_writable()
        assert str(prefix) in str(caught.value)
        assert "--prefix" in str(caught.value)


def test_errors_of_a_client_are_told_as_a_store_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoCredentials(Exception):
        pass

    def refuse(key: str, data: bytes) -> None:
        raise NoCredentials("unable to locate credentials")

    monkeypatch.setattr(store, "create", refuse)
    with pytest.raises(StoreError, match="unable to locate credentials") as caught:
        store.check_writable()
    assert "MARIN_PREFIX" in str(caught.value)


def test_an_unknown_scheme_is_a_store_error() -> None:
    with pytest.raises(StoreError, match="nowhere"):
        open_store("nowhere://bucket/prefix").read("key")


def test_addresses_are_read_as_fsspec_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert split_url("gs://bucket/a b") == ("gs", "bucket/a b")
    assert split_url("relative/folder") == ("file", "relative/folder")
    monkeypatch.chdir(tmp_path)
    store = open_store("relative")
    store.create("key", b"1")
    monkeypatch.chdir("/")
    assert store.read("key") == b"1"
    assert store.local_path("key") == tmp_path / "relative" / "key"
    assert open_store(f"file://{tmp_path}/relative").read("key") == b"1"
    assert open_store("memory://bucket/prefix/").url == "memory://bucket/prefix"
    assert open_store("memory://bucket/prefix").local_path("key") is None
