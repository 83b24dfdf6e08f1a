"""Stores of S3 and GCS whose network and service fail: what passes is asked again, what stays is said at once."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from marin.storage import (
    AlreadyExists,
    MissingObject,
    ObjectInfo,
    Store,
    StoreError,
    StoreUnavailable,
    StoreUnreachable,
)
from marin.storage.patience import Patience
from marin.storage.remote import RemoteStore
from tests.storage.emulators import BUCKET, SERVERS, Emulator, forget_clients, free_port
from tests.storage.faulty import CUT, DROPPED, LOST, Faults, proxy

QUICK = Patience(budget_seconds=20.0, silence_seconds=1.0, first_seconds=0.01, longest_seconds=0.1)
SHORT = Patience(budget_seconds=0.6, silence_seconds=0.2, first_seconds=0.01, longest_seconds=0.1)
BIG = bytes(range(256)) * 45_000
"""Three parts of an upload."""
THERE = bytes(range(256)) * 3_000
"""Three ranges of a stream, as they are set here."""


@dataclass(frozen=True)
class Troubled:
    """A store behind a proxy, the same store without it, and what goes wrong on the way."""

    store: RemoteStore
    direct: RemoteStore
    faults: Faults

    def with_patience(self, patience: Patience) -> RemoteStore:
        return RemoteStore(self.store.scheme, self.store.path, patience)


@pytest.fixture(params=tuple(SERVERS))
def troubled(
    request: pytest.FixtureRequest, emulator: Callable[[str], Emulator], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Troubled]:
    """A store of each kind in turn, empty and without faults at first."""
    monkeypatch.setattr("marin.storage.s3.PART_BYTES", 5 * 2**20)
    monkeypatch.setattr("marin.storage.gcs.PART_BYTES", 5 * 2**20)
    monkeypatch.setattr("marin.storage.ranged.AHEAD_BYTES", 2**18)
    server = emulator(request.param)
    path = f"{BUCKET}/{uuid.uuid4().hex}"
    direct = RemoteStore(server.scheme, path)
    direct.create("there", THERE)
    forget_clients()
    with proxy(server.endpoint, server.scheme) as (address, faults):
        for name, value in server.at(address).environment.items():
            monkeypatch.setenv(name, value)
        yield Troubled(RemoteStore(server.scheme, path, QUICK), direct, faults)
    forget_clients()


def write_parts(store: Store) -> None:
    with store.writer("written") as stream:
        for start in range(0, len(BIG), 1_000_000):
            stream.write(BIG[start : start + 1_000_000])


def write_small(store: Store) -> None:
    with store.writer("written") as stream:
        stream.write(b"small")


def read_ranges(store: Store) -> bytes:
    with store.open("there") as stream:
        stream.seek(600_000)
        end = stream.read()
        stream.seek(0)
        return stream.read(300_000) + stream.read(300_000) + end


USES: dict[str, tuple[Callable[[Store], object], object, dict[str, bytes]]] = {
    "read": (lambda store: store.read("there"), THERE, {}),
    "ranges": (read_ranges, THERE, {}),
    "size": (lambda store: (store.size("there"), store.size("not")), (len(THERE), None), {}),
    "list": (lambda store: store.list(), [ObjectInfo("there", len(THERE))], {}),
    "folders": (lambda store: store.folders(), (), {}),
    "create": (lambda store: store.create("written", b"small"), None, {"written": b"small"}),
    "create big": (lambda store: store.create("written", THERE), None, {"written": THERE}),
    "put": (lambda store: store.put("written", b"small"), None, {"written": b"small"}),
    "writer": (write_small, None, {"written": b"small"}),
    "writer in parts": (write_parts, None, {"written": BIG}),
    "delete": (lambda store: store.delete("not"), None, {}),
}
"""What is done, what it returns, and what lies there afterwards that was not there before."""


CASES = [
    *((use, fault) for use in USES for fault in ("503", DROPPED, LOST)),
    *((use, fault) for use in ("read", "create") for fault in ("429", "500")),
    *((use, CUT) for use in ("read", "ranges", "list", "folders", "writer in parts")),
]


@pytest.mark.parametrize(("use", "fault"), CASES)
def test_each_operation_gets_over_two_failures_of_each_of_its_requests(
    troubled: Troubled, use: str, fault: str
) -> None:
    act, result, written = USES[use]
    troubled.store.size("there")
    troubled.faults.seen.clear()
    assert act(troubled.with_patience(QUICK)) == result
    needed = [*troubled.faults.seen]
    for key in written:
        troubled.direct.delete(key)
    for number in range(len(needed)):
        troubled.faults.seen.clear()
        troubled.faults.left = [*[""] * number, fault, fault]
        assert act(troubled.store) == result
        assert troubled.faults.left == []
        assert len(troubled.faults.seen) >= len(needed) + 2
        for key, data in written.items():
            assert troubled.direct.read(key) == data
            troubled.direct.delete(key)
        assert [info.key for info in troubled.direct.list()] == ["there"]


def test_a_create_whose_reply_was_lost_has_succeeded_and_the_next_one_finds_it(troubled: Troubled) -> None:
    troubled.faults.left = [LOST]
    troubled.store.create("claim", b"ours")
    assert troubled.direct.read("claim") == b"ours"
    with pytest.raises(AlreadyExists):
        troubled.store.create("claim", b"ours")


def test_a_create_that_was_tried_again_does_not_take_what_another_made(troubled: Troubled) -> None:
    troubled.direct.create("claim", b"another's")
    for fault in (DROPPED, LOST, "503"):
        troubled.faults.left = [fault]
        with pytest.raises(AlreadyExists):
            troubled.store.create("claim", b"ours")
    assert troubled.direct.read("claim") == b"another's"


def test_an_object_that_is_missing_is_missing_after_trouble_too(troubled: Troubled) -> None:
    troubled.faults.left = ["503", DROPPED]
    with pytest.raises(MissingObject):
        troubled.store.read("nothing")


@pytest.mark.parametrize(("use", "fault"), [*((use, "503") for use in USES), ("read", DROPPED), ("create", DROPPED)])
def test_trouble_that_does_not_pass_is_a_store_that_is_unavailable_within_the_budget(
    troubled: Troubled, use: str, fault: str
) -> None:
    store = troubled.with_patience(SHORT)
    assert store.size("there") == len(THERE)
    troubled.faults.seen.clear()
    troubled.faults.always = fault
    start = time.monotonic()
    with pytest.raises(StoreUnavailable, match=rf"{BUCKET}.*again later") as caught:
        USES[use][0](store)
    assert not isinstance(caught.value, StoreUnreachable)
    assert time.monotonic() - start < 10.0
    assert len(troubled.faults.seen) >= 2
    troubled.faults.always = ""
    assert [info.key for info in troubled.direct.list()] == ["there"]


def test_a_stream_that_is_open_when_the_trouble_begins_reads_on_afterwards(troubled: Troubled) -> None:
    with troubled.store.open("there") as stream:
        head = stream.read(10)
        troubled.faults.left = ["503", CUT, DROPPED, "429"]
        assert head + stream.read() == THERE
    assert troubled.faults.left == []


def test_a_request_that_is_denied_is_not_asked_again(troubled: Troubled) -> None:
    troubled.store.size("there")
    troubled.faults.always = "403"
    for use in USES.values():
        troubled.faults.seen.clear()
        with pytest.raises(StoreError, match=rf"{troubled.store.url}.*(no access|Forbidden).*--prefix") as caught:
            use[0](troubled.store)
        assert not isinstance(caught.value, StoreUnavailable)
        assert len(troubled.faults.seen) <= 2


def test_a_bucket_that_is_not_there_is_said_at_once_with_its_name(troubled: Troubled) -> None:
    store = RemoteStore(troubled.store.scheme, "elsewhere-4711/prefix", QUICK)
    for use in ("list", "folders", "create", "put", "writer", "writer in parts"):
        troubled.faults.seen.clear()
        with pytest.raises(StoreError, match=r"no bucket 'elsewhere-4711'.*--prefix"):
            USES[use][0](store)
        assert len(troubled.faults.seen) <= 2
    with pytest.raises(StoreError, match="elsewhere-4711"):
        store.check_writable()


def test_the_self_test_refuses_a_server_that_does_not_know_conditions(troubled: Troubled) -> None:
    troubled.store.check_writable()
    troubled.faults.unconditional = True
    with pytest.raises(StoreError, match="create-if-absent"):
        troubled.store.check_writable()
    assert [info.key for info in troubled.direct.list()] == ["there"]


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("host", ["127.0.0.1", "nowhere.invalid"])
def test_a_store_that_cannot_be_reached_is_said_within_seconds(
    kind: str, host: str, emulator: Callable[[str], Emulator], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = emulator(kind)
    for name, value in server.at(f"http://{host}:{free_port()}").environment.items():
        monkeypatch.setenv(name, value)
    store = RemoteStore(server.scheme, f"{BUCKET}/prefix")
    for use in (lambda: store.check_writable(), lambda: store.list()):
        start = time.monotonic()
        with pytest.raises(StoreUnreachable, match=rf"{BUCKET}.*look at the network.*endpoint"):
            use()
        assert time.monotonic() - start < 15.0


def test_missing_credentials_are_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_clients()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "GOOGLE_APPLICATION_CREDENTIALS"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HOME", "CLOUDSDK_CONFIG"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    for url, hint in (("s3", "credentials"), ("gs", "GOOGLE_APPLICATION_CREDENTIALS")):
        start = time.monotonic()
        with pytest.raises(StoreError, match=hint) as caught:
            RemoteStore(url, "bucket/prefix").check_writable()
        assert not isinstance(caught.value, StoreUnavailable)
        assert time.monotonic() - start < 15.0
