"""What clients of object stores answer, in the terms of the contract."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from marin.storage import AlreadyExists, StoreError
from marin.storage.remote import CREATE_TRIES, RemoteStore


class Refusal(Exception):
    """As botocore's ClientError: the cause of what s3fs raises."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.response = {"Error": {"Code": code}}


def translated(code: str) -> OSError:
    """What s3fs makes of a response that it does not know better."""
    error = OSError(errno.EIO, code)
    error.__cause__ = Refusal(code)
    return error


class Client:
    """An fsspec client whose creates answer as told, one after the other; None is success."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.calls = 0

    def pipe_file(self, path: str, data: bytes, mode: str = "overwrite") -> None:
        self.calls += 1
        answer = self.answers.pop(0)
        if answer is not None:
            raise answer


def store_with(client: Any) -> RemoteStore:
    store = RemoteStore("s3", "bucket/prefix")
    store._connected = client
    return store


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("marin.storage.remote.CONFLICT_PAUSE_SECONDS", 0.0)


def test_a_failed_precondition_means_that_the_object_exists() -> None:
    for answer in (FileExistsError("there"), translated("PreconditionFailed")):
        with pytest.raises(AlreadyExists, match="s3://bucket/prefix/claim exists"):
            store_with(Client(answer)).create("claim", b"1")


def test_the_loser_of_a_race_tries_again_and_learns_who_won() -> None:
    conflict = "ConditionalRequestConflict"
    client = Client(translated(conflict), translated(conflict), translated("PreconditionFailed"))
    with pytest.raises(AlreadyExists):
        store_with(client).create("claim", b"1")
    assert client.calls == 3
    store_with(Client(translated(conflict), None)).create("claim", b"1")
    with pytest.raises(OSError, match=conflict):
        store_with(Client(*[translated(conflict)] * CREATE_TRIES)).create("claim", b"1")


def test_other_refusals_are_not_tried_again() -> None:
    client = Client(translated("AccessDenied"), None)
    with pytest.raises(OSError, match="AccessDenied"):
        store_with(client).create("claim", b"1")
    assert client.calls == 1


@pytest.mark.parametrize(
    "use",
    [
        lambda store: store.read("key"),
        lambda store: store.open("key"),
        lambda store: store.create("key", b""),
        lambda store: store.put("key", b""),
        lambda store: store.writer("key"),
        lambda store: store.size("key"),
        lambda store: store.list("_steps"),
        lambda store: store.delete("key"),
    ],
)
def test_an_error_of_the_clients_own_is_a_store_error_with_a_way_out(use: Callable[[RemoteStore], Any]) -> None:
    class NoCredentials(Exception):
        """As botocore's: no OSError."""

    class Locked:
        def __getattr__(self, name: str) -> Any:
            def refuse(*args: Any, **kwargs: Any) -> Any:
                raise NoCredentials("unable to locate credentials")

            return refuse

    with pytest.raises(StoreError, match=r"s3://bucket/prefix cannot be used \(NoCredentials.*--prefix"):
        use(store_with(Locked()))
