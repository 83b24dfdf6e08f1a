"""What an exception means for trying again."""

from __future__ import annotations

import errno
from collections.abc import Callable

import aiohttp
import botocore.exceptions
import numpy as np
import pytest
import requests
import s3fs.errors
from aiohttp.client_reqrep import ConnectionKey
from gcsfs.retry import HttpError

from marin.execution import FailureClass, LeaseLost, StepError
from marin.execution.failures import Cancelled
from marin.execution.running.worker import classify
from marin.storage import MissingObject, StoreError, StoreUnavailable


def s3_refusal(code: str, status: int) -> botocore.exceptions.ClientError:
    response = {"Error": {"Code": code, "Message": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return botocore.exceptions.ClientError(response, "GetObject")  # type: ignore[arg-type]


def caused(outer: Exception, inner: Exception) -> Exception:
    outer.__cause__ = inner
    return outer


def while_handling(outer: Exception, inner: Exception) -> Exception:
    outer.__context__ = inner
    return outer


def web_error(status: int) -> aiohttp.ClientResponseError:
    return aiohttp.ClientResponseError(None, (), status=status)  # type: ignore[arg-type]


def no_connection() -> aiohttp.ClientConnectorError:
    key = ConnectionKey("nowhere.invalid", 443, True, True, None, None, None)
    return aiohttp.ClientConnectorError(key, OSError(errno.ECONNREFUSED, "refused"))


@pytest.mark.parametrize(
    "make",
    [
        lambda: StoreUnavailable("throttled"),
        lambda: s3_refusal("SlowDown", 503),
        lambda: s3_refusal("ThrottlingException", 400),
        lambda: s3_refusal("Unknown", 500),
        lambda: s3fs.errors.translate_boto_error(s3_refusal("SlowDown", 503)),
        lambda: while_handling(
            s3fs.errors.translate_boto_error(s3_refusal("503", 503), set_cause=False), s3_refusal("503", 503)
        ),
        lambda: botocore.exceptions.ReadTimeoutError(endpoint_url="https://x"),
        lambda: botocore.exceptions.ConnectionClosedError(endpoint_url="https://x"),
        lambda: HttpError({"code": 429, "message": "rate"}),
        lambda: HttpError({"code": "503", "message": "backend"}),
        lambda: requests.exceptions.ReadTimeout("slow"),
        lambda: requests.exceptions.ProxyError("502"),
        lambda: web_error(503),
        lambda: aiohttp.ServerDisconnectedError(),
        lambda: caused(StepError("the shard cannot be read"), web_error(429)),
        lambda: caused(FileNotFoundError("x"), web_error(500)),
    ],
)
def test_a_store_that_gave_no_answer_is_asked_again(make: Callable[[], BaseException]) -> None:
    assert classify(make()) is FailureClass.preempted


@pytest.mark.parametrize(
    "make",
    [
        lambda: StoreError("no such bucket"),
        lambda: MissingObject("nothing lies there"),
        lambda: s3_refusal("AccessDenied", 403),
        lambda: s3_refusal("NoSuchKey", 404),
        lambda: s3fs.errors.translate_boto_error(s3_refusal("NoSuchKey", 404)),
        lambda: botocore.exceptions.NoCredentialsError(),
        lambda: botocore.exceptions.EndpointConnectionError(endpoint_url="https://x"),
        lambda: HttpError({"code": 404, "message": "no"}),
        lambda: web_error(404),
        no_connection,
        lambda: aiohttp.InvalidURL("x"),
        lambda: while_handling(ValueError("a bug"), web_error(503)),
        lambda: ConnectionResetError("of the step's own socket"),
        lambda: TimeoutError("of the step's own"),
        lambda: StepError("503 pages are missing"),
        lambda: OSError(errno.ENOSPC, "disk full"),
    ],
)
def test_an_error_that_stays_one_is_not_tried_again(make: Callable[[], BaseException]) -> None:
    assert classify(make()) is FailureClass.error


class OutOfMemoryError(RuntimeError):
    """As torch's."""


def test_what_ran_out_of_memory_is_known_by_its_many_names() -> None:
    torchs = type("OutOfMemoryError", (RuntimeError,), {"__module__": "torch"})
    cpu = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 1 bytes")
    with pytest.raises(MemoryError) as numpys:
        np.empty(2**50)
    for error in (MemoryError(), torchs("CUDA"), cpu, OSError(errno.ENOMEM, "fork"), numpys.value):
        assert classify(error) is FailureClass.memory
    assert classify(OutOfMemoryError("a class of somebody else")) is FailureClass.error


def test_the_other_classes() -> None:
    assert classify(LeaseLost("x")) is FailureClass.lease
    assert classify(Cancelled("x")) is FailureClass.cancelled
    assert classify(KeyboardInterrupt()) is FailureClass.cancelled
    assert classify(ZeroDivisionError()) is FailureClass.error
