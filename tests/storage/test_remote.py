"""What clients of object stores answer, in the terms of the contract."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any

import aiohttp
import google.auth.exceptions
import pytest
import requests.exceptions
from botocore.exceptions import (
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
    SSLError,
)
from gcsfs.retry import HttpError
from s3fs.errors import translate_boto_error

from marin.storage import AlreadyExists, MissingObject, StoreError, StoreUnavailable, gcs, s3
from marin.storage.client import Client
from marin.storage.gcs_upload import stored_of
from marin.storage.patience import Asking, Patience, Trouble
from marin.storage.remote import RemoteStore

QUICK = Patience(budget_seconds=0.3, silence_seconds=0.1, first_seconds=0.01, longest_seconds=0.05)


class Answers:
    """An fsspec file system each call of which answers as told, one after the other."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def answer(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            given = self.answers.pop(0)
            if isinstance(given, Exception):
                raise given
            return given

        return answer


def store_with(*answers: Any) -> RemoteStore:
    store = RemoteStore("s3", "bucket/prefix")
    store._connected = Client(Answers(*answers))
    return store


def test_an_object_in_the_way_exists_already() -> None:
    with pytest.raises(AlreadyExists, match="s3://bucket/prefix/claim exists"):
        store_with(FileExistsError("there")).create("claim", b"1")


USES: list[Callable[[RemoteStore], Any]] = [
    lambda store: store.read("key"),
    lambda store: store.open("key"),
    lambda store: store.create("key", b""),
    lambda store: store.put("key", b""),
    lambda store: store.writer("key"),
    lambda store: store.size("key"),
    lambda store: store.list("_steps"),
    lambda store: store.folders("_steps"),
    lambda store: store.delete("key"),
]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("error", [NoCredentialsError(), PermissionError("denied"), OSError(errno.EIO, "odd")])
def test_any_error_of_a_client_is_a_store_error_with_the_address_and_a_way_out(
    use: Callable[[RemoteStore], Any], error: Exception
) -> None:
    with pytest.raises(StoreError, match=rf"s3://bucket/prefix cannot be used \({type(error).__name__}.*--prefix"):
        use(store_with(error))


def test_what_is_missing_for_a_writer_or_a_listing_is_the_bucket() -> None:
    for use in (lambda s: s.create("key", b""), lambda s: s.put("key", b""), lambda s: s.writer("key")):
        with pytest.raises(StoreError, match=r"no bucket 'bucket' for s3://bucket/prefix.*--prefix"):
            use(store_with(FileNotFoundError("NoSuchBucket")))
    with pytest.raises(MissingObject, match="s3://bucket/prefix/key"):
        store_with(FileNotFoundError("NoSuchKey")).read("key")
    store_with(FileNotFoundError("NoSuchKey")).delete("key")


def of_s3(status: int, code: str) -> BaseException:
    """What s3fs makes of a response."""
    response = {"Error": {"Code": code, "Message": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return translate_boto_error(ClientError(response, "PutObject"))  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (of_s3(503, "SlowDown"), Trouble.BUSY),
        (of_s3(503, "503"), Trouble.BUSY),
        (of_s3(429, "TooManyRequestsException"), Trouble.BUSY),
        (of_s3(500, "InternalError"), Trouble.BUSY),
        (of_s3(400, "RequestTimeout"), Trouble.BUSY),
        (of_s3(409, "ConditionalRequestConflict"), Trouble.BUSY),
        (ReadTimeoutError(endpoint_url="http://s3"), Trouble.BUSY),
        (aiohttp.ClientPayloadError("cut"), Trouble.BUSY),
        (EndpointConnectionError(endpoint_url="http://s3"), Trouble.SILENT),
        (ConnectTimeoutError(endpoint_url="http://s3"), Trouble.SILENT),
        (SSLError(endpoint_url="http://s3", error="certificate"), None),
        (of_s3(403, "AccessDenied"), None),
        (of_s3(404, "NoSuchKey"), None),
        (of_s3(412, "PreconditionFailed"), None),
        (NoCredentialsError(), None),
        (ValueError("ours"), None),
    ],
    ids=lambda value: str(value)[:40],
)
def test_trouble_of_s3_that_may_pass_is_told_from_what_stays(error: BaseException, trouble: Trouble | None) -> None:
    assert s3.trouble_of(error) is trouble


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (HttpError({"code": 429}), Trouble.BUSY),
        (HttpError({"code": 500}), Trouble.BUSY),
        (HttpError({"code": "503"}), Trouble.BUSY),
        (HttpError({"code": 409}), Trouble.BUSY),
        (requests.exceptions.ProxyError(), Trouble.BUSY),
        (aiohttp.ServerDisconnectedError(), Trouble.BUSY),
        (aiohttp.ClientPayloadError("cut"), Trouble.BUSY),
        (aiohttp.ServerTimeoutError(), Trouble.BUSY),
        (aiohttp.ConnectionTimeoutError(), Trouble.SILENT),
        (google.auth.exceptions.TransportError("no token"), Trouble.SILENT),
        (aiohttp.InvalidUrlClientError("gs"), None),
        (HttpError({"code": 401, "message": "Invalid Credentials"}), None),
        (HttpError({"code": 400}), None),
        (OSError("Forbidden"), None),
        (FileNotFoundError("b/o"), None),
        (FileExistsError("b/o"), None),
    ],
    ids=lambda value: f"{value!r:.40}",
)
def test_trouble_of_gcs_that_may_pass_is_told_from_what_stays(error: BaseException, trouble: Trouble | None) -> None:
    assert gcs.trouble_of(error) is trouble


def test_a_token_of_gcs_that_is_not_renewed_passes_only_when_its_reason_does() -> None:
    def unauthorised(reason: Exception) -> HttpError:
        error = HttpError({"code": 401, "message": "Invalid Credentials"})
        error.__cause__ = reason
        return error

    refused = google.auth.exceptions.RefreshError("invalid_grant")
    assert gcs.trouble_of(unauthorised(refused)) is None
    assert gcs.trouble_of(unauthorised(google.auth.exceptions.RefreshError("busy", retryable=True))) is Trouble.SILENT
    silent = google.auth.exceptions.RefreshError("the metadata server")
    silent.__cause__ = google.auth.exceptions.TransportError("no answer")
    assert gcs.trouble_of(unauthorised(silent)) is Trouble.SILENT


def trouble_of(error: BaseException) -> Trouble | None:
    return {"busy": Trouble.BUSY, "silent": Trouble.SILENT}.get(str(error))


def ask(asking: Asking, *answers: str | Exception) -> tuple[str, list[int]]:
    """The result, and the attempts that it took."""
    left, attempts = list(answers), []

    async def request(attempt: int) -> str:
        attempts.append(attempt)
        given = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(given, Exception):
            raise given
        return given

    return asyncio.run(asking(request, "s3://bucket/key")), attempts


def test_what_passes_is_asked_again_until_it_has_passed() -> None:
    busy, silent = OSError("busy"), OSError("silent")
    assert ask(Asking(QUICK, trouble_of), busy, silent, busy, "well") == ("well", [1, 2, 3, 4])


def test_what_stays_is_raised_as_it_is_at_once() -> None:
    with pytest.raises(OSError, match=r"^denied$"):
        ask(Asking(Patience(), trouble_of), OSError("denied"))


def test_trouble_that_does_not_pass_within_the_budget_is_a_store_that_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable, match=r"s3://bucket/key .*busy; asked \d+ times .*again later") as caught:
        ask(Asking(QUICK, trouble_of), OSError("busy"))
    assert isinstance(caught.value.__cause__, OSError)


def test_a_store_that_never_answered_is_given_up_sooner_than_one_that_has(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    async def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr("marin.storage.patience.asyncio.sleep", sleep)
    monkeypatch.setattr("marin.storage.patience.time.monotonic", lambda: now[0])
    asking = Asking(Patience(budget_seconds=60.0, silence_seconds=4.0), trouble_of)
    with pytest.raises(StoreUnavailable):
        ask(asking, OSError("silent"))
    assert 1.0 < now[0] <= 4.0
    ask(asking, "well")
    now[0] = 0.0
    with pytest.raises(StoreUnavailable):
        ask(asking, OSError("silent"))
    assert 40.0 < now[0] <= 60.0


def test_pauses_double_up_to_the_longest_and_differ_between_workers() -> None:
    patience = Patience(first_seconds=1.0, longest_seconds=8.0)
    for attempt, longest in ((1, 1.0), (2, 2.0), (4, 8.0), (500, 8.0)):
        pauses = [patience.pause(attempt) for _ in range(200)]
        assert longest / 2 <= min(pauses) < max(pauses) <= longest
        assert len(set(pauses)) > 100


def test_a_session_of_gcs_has_whole_quanta_or_everything() -> None:
    quantum = 256 * 1024
    assert stored_of(None, 10 * quantum) == 0
    assert stored_of("bytes=0-0", 10 * quantum) == 0
    assert stored_of(f"bytes=0-{3 * quantum - 1}", 10 * quantum) == 3 * quantum
    assert stored_of(f"bytes=0-{10 * quantum - 1}", 10 * quantum) == 10 * quantum
    assert stored_of("bytes=0-99", 100) == 100
