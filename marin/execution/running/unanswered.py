"""Tell a store or server that gave no answer, so that trying again may help, from an error that stays one."""

from __future__ import annotations

from collections.abc import Iterator

from marin.storage import StoreUnavailable

STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
CODES = frozenset(
    {
        "InternalError",
        "OperationAborted",
        "RequestLimitExceeded",
        "RequestTimeout",
        "RequestTimeoutException",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
        "TooManyRequestsException",
    }
)
CLIENTS = frozenset({"aiobotocore", "aiohttp", "botocore", "gcsfs", "google", "requests", "urllib3"})
BROKEN_CONNECTIONS = frozenset(
    {
        "ChunkedEncodingError",
        "ClientConnectionError",
        "ClientPayloadError",
        "ConnectionError",
        "HTTPClientError",
        "ProxyError",
        "ServiceUnavailable",
        "Timeout",
        "TransportError",
    }
)
"""Base classes, in these clients, of errors without a status."""
NO_CONNECTIONS = frozenset({"ClientConnectorError", "EndpointConnectionError"})
"""Those of a server that was never there: more likely a wrong address than a bad minute."""
LONGEST_CHAIN = 16


def gave_no_answer(error: BaseException) -> bool:
    """Whether an error, or what caused it, is a store or server that throttled, failed (5xx) or fell silent."""
    return any(isinstance(one, StoreUnavailable) or _of_client(one) for one in _causes(error))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes; below an OSError also what was being handled, since s3fs names no cause."""
    current: BaseException | None = error
    for _ in range(LONGEST_CHAIN):
        if current is None:
            return
        yield current
        handled = current.__context__ if isinstance(current, OSError) else None
        current = current.__cause__ or handled


def _of_client(error: BaseException) -> bool:
    if type(error).__module__.partition(".")[0] not in CLIENTS:
        return False
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return response.get("Error", {}).get("Code") in CODES or status in STATUSES
    for name in ("status", "code"):
        status = getattr(error, name, None)
        if isinstance(status, (int, str)) and str(status).isdigit():
            return int(status) in STATUSES
    names = {base.__name__ for base in type(error).__mro__}
    return not names.isdisjoint(BROKEN_CONNECTIONS) and names.isdisjoint(NO_CONNECTIONS)
