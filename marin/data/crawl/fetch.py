"""HTTP over a few kept connections, with host names mapped to one address."""

from __future__ import annotations

import http.client
import socket
import threading
from dataclasses import dataclass
from urllib.parse import urlsplit

USER_AGENT = "marin-crawler/1 (+http://docs.invalid/crawler)"
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Fetched:
    """One HTTP exchange. ``body`` is cut to one byte above the fetcher's limit when it is longer."""

    url: str
    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    request_line: str
    request_headers: tuple[tuple[str, str], ...]

    @property
    def is_html(self) -> bool:
        """Whether the server calls the body HTML."""
        return any(name.lower() == "content-type" and "html" in value for name, value in self.headers)


class Fetcher:
    """Fetches URLs of any host from one address, with one kept connection for each thread.

    Args:
        address: host and port that every host name is mapped to.
        max_body: bytes of a body that are read at most, plus one that shows the rest.
        timeout: seconds to wait for an answer.
    """

    def __init__(self, address: tuple[str, int], *, max_body: int, timeout: float = 60.0) -> None:
        self._address = address
        self._max_body = max_body
        self._timeout = timeout
        self._local = threading.local()
        self._connections: list[http.client.HTTPConnection] = []

    def fetch(self, url: str) -> Fetched:
        """One exchange, tried again on a broken connection.

        Raises:
            OSError: the server does not answer.
        """
        for attempt in range(_ATTEMPTS):
            try:
                return self._exchange(url)
            except (OSError, http.client.HTTPException) as error:
                self._drop_connection()
                if attempt + 1 == _ATTEMPTS:
                    raise OSError(f"no answer for {url}: {error!r}") from error
        raise AssertionError("unreachable: the loop returns or raises")

    def close(self) -> None:
        """Close every connection."""
        for connection in self._connections:
            connection.close()

    def _exchange(self, url: str) -> Fetched:
        parts = urlsplit(url)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = (("Host", parts.netloc), ("User-Agent", USER_AGENT), ("Accept", "text/html,*/*;q=0.5"))
        connection = self._connection()
        connection.putrequest("GET", target, skip_host=True, skip_accept_encoding=True)
        for name, value in headers:
            connection.putheader(name, value)
        connection.endheaders()
        response = connection.getresponse()
        body = response.read(self._max_body + 1)
        if not response.isclosed():
            self._drop_connection()
        return Fetched(
            url=url,
            status=response.status,
            reason=response.reason,
            headers=tuple(response.getheaders()),
            body=body,
            request_line=f"GET {target} HTTP/1.1",
            request_headers=headers,
        )

    def _connection(self) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = http.client.HTTPConnection(*self._address, timeout=self._timeout)
            connection.connect()
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._local.connection = connection
            self._connections.append(connection)
        return connection

    def _drop_connection(self) -> None:
        connection: http.client.HTTPConnection | None = getattr(self._local, "connection", None)
        if connection is not None:
            connection.close()
            self._local.connection = None
