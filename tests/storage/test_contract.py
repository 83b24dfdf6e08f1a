"""The contract of every store: on a local disk, in memory, and on servers that speak as S3 and GCS do."""

from __future__ import annotations

import gc
import gzip
import hashlib
import pickle
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from marin.storage import (
    AlreadyExists,
    CountedStore,
    InvalidKey,
    InvalidPrefix,
    MissingObject,
    ObjectInfo,
    Store,
    StoreError,
    open_store,
    split_url,
)
from marin.storage.remote import RemoteStore
from tests.storage.backends import SPECIAL_NAMES
from tests.storage.emulators import SERVERS, Emulator, forget_clients


def test_of_sixteen_racing_writers_one_wins_and_its_bytes_stay(store: Store) -> None:
    for turn in range(6):
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
    assert [info.key for info in store.list()] == sorted(f"race/{turn}" for turn in range(6))


@pytest.mark.parametrize("kind", ["local", *SERVERS])
def test_of_racing_processes_one_wins(kind: str, tmp_path: Path, emulator: Callable[[str], Emulator]) -> None:
    url = emulator(kind).prefix("processes") if kind in SERVERS else str(tmp_path / "prefix")
    go = tmp_path / "go"
    commands = [
        [sys.executable, "-m", "tests.storage.backends", "race", url, "records/one", str(go), f"<{number}>"]
        for number in range(6)
    ]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    go.touch()
    won = [process.communicate(timeout=60)[0].strip() for process in processes]
    assert sorted(won) == ["0"] * 5 + ["1"]
    assert open_store(url).read("records/one") == f"<{won.index('1')}>".encode() * 1000


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


def test_a_range_is_read_without_the_rest(store: Store) -> None:
    store.create("digits", b"0123456789")
    assert store.read_range("digits", 0, 3) == b"012"
    assert store.read_range("digits", 4, 9) == b"45678"
    assert store.read_range("digits", 9, 10) == b"9"
    with pytest.raises(MissingObject):
        store.read_range("letters", 0, 1)


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


def test_a_listing_passes_a_page_and_gives_each_page_only_when_it_is_wanted(store: Store) -> None:
    keys = [f"_steps/{index:05d}" for index in range(1_107)]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda key: store.create(key, b"1"), keys))
    store.create("_steps-too/1", b"1")
    counted = CountedStore(store)
    assert [info.key for info in counted.list("_steps")] == keys
    assert sorted(info.key for page in counted.pages("_steps/") for info in page) == keys
    paged = isinstance(store, RemoteStore) and store.scheme in ("s3", "gs")
    assert counted.requests["LIST"] == (4 if paged else 2)
    first = next(counted.pages("_steps"))
    assert [info.key for info in first] == (keys[:1_000] if paged else keys)
    assert counted.requests["LIST"] == (5 if paged else 3)


def test_what_another_client_writes_or_deletes_is_seen_at_once(store: Store) -> None:
    store.create("folder/one", b"1")
    assert (len(store.list()), store.size("folder/two"), store.folders()) == (1, None, ("folder",))
    forget_clients()
    other = pickle.loads(pickle.dumps(store))
    other.create("folder/two", b"22")
    other.create("more/three", b"333")
    assert [info.key for info in store.list()] == ["folder/one", "folder/two", "more/three"]
    assert (store.size("folder/two"), store.read("folder/two")) == (2, b"22")
    assert store.folders() == ("folder", "more")
    other.put("folder/two", b"4444")
    other.delete("folder/one")
    assert (store.size("folder/two"), store.read("folder/two")) == (4, b"4444")
    assert (store.exists("folder/one"), len(store.list("folder"))) == (False, 1)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uploads in parts of 5 MiB, the least that S3 takes."""
    for module in ("s3", "gcs"):
        monkeypatch.setattr(f"marin.storage.{module}.PART_BYTES", 5 * 2**20)


@pytest.mark.usefixtures("small_parts")
def test_a_big_object_goes_in_parts_and_is_read_back_by_ranges(store: Store) -> None:
    data = random.Random(7).randbytes(21_000_000)
    with store.writer("data/parts") as stream:
        for start in range(0, len(data), 700_000):
            stream.write(data[start : start + 700_000])
        assert not store.exists("data/parts")
    assert (stream.size, stream.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    store.create("data/one", data)
    with pytest.raises(AlreadyExists):
        store.create("data/one", data)
    for key in ("data/parts", "data/one"):
        assert store.size(key) == len(data)
        assert store.read(key) == data
    with store.open("data/parts") as reader:
        assert reader.seekable()
        for start, length in ((20_000_000, 50), (0, 10), (5 * 2**20 - 5, 10), (3, 9_000_000), (len(data) - 4, 100)):
            assert reader.seek(start) == start
            assert reader.read(length) == data[start : start + length]
            assert reader.tell() == min(start + length, len(data))
        assert reader.read(1) == b""
        reader.seek(0)
        assert hashlib.file_digest(reader, "sha256").hexdigest() == stream.sha256


@pytest.mark.usefixtures("small_parts")
def test_a_big_writer_that_is_given_up_half_way_leaves_nothing(store: Store) -> None:
    stream = store.writer("data/parts")
    for _ in range(12):
        stream.write(bytes(1_000_000))
    stream.abandon()
    stream = store.writer("data/other")
    for _ in range(12):
        stream.write(bytes(1_000_000))
    del stream
    gc.collect()
    assert store.list() == []
    if isinstance(store, RemoteStore) and store.scheme == "s3":
        bucket = store.path.partition("/")[0]
        assert not store.client.fs.call_s3("list_multipart_uploads", Bucket=bucket).get("Uploads")


def test_a_process_that_ends_with_open_writers_ends_at_once_and_publishes_nothing(store: Store) -> None:
    if store.url.startswith("memory:"):
        store = open_store(store.url)  # what a process leaves in its memory is gone with it
    command = [sys.executable, "-m", "tests.storage.backends", "leaves", store.url]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stderr) == (3, "")
    assert store.list() == []


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


@pytest.mark.parametrize(
    ("address", "way_out"),
    [
        ("gs:/bucket/x", "did you mean gs://bucket/x? A local folder of that name is ./gs:/bucket/x"),
        ("s3:/bucket", "did you mean s3://bucket?"),
        ("gs:bucket", "did you mean gs://bucket?"),
        ("file:/data/x", "did you mean file:///data/x?"),
        ("", "empty; name a folder or a bucket"),
        ("  ", "empty; name a folder or a bucket"),
    ],
)
def test_an_address_that_can_be_no_prefix_is_refused_with_the_right_spelling(address: str, way_out: str) -> None:
    with pytest.raises(InvalidPrefix) as caught:
        open_store(address)
    assert way_out in str(caught.value)


def test_a_folder_that_is_named_like_an_address_can_be_given_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    open_store("./gs:/bucket").create("key", b"1")
    assert (tmp_path / "gs:" / "bucket" / "key").read_bytes() == b"1"
    assert open_store("notes:2026").url == str(tmp_path / "notes:2026")


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
