"""A proxy before a server that does to requests what networks and busy services do."""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

LOST = "the reply is lost after the server has done its work"
DROPPED = "the connection breaks before the server sees the request"
CUT = "the connection breaks in the middle of the reply"
DONE = -1
STATUS = re.compile(r"\d{3}")

REASONS = {
    403: ("AccessDenied", "no access"),
    429: ("TooManyRequestsException", "too many"),
    500: ("InternalError", "inside"),
    503: ("SlowDown", "Please reduce your request rate."),
}


@dataclass
class Faults:
    """What goes wrong: `left` are faults (an HTTP status, LOST, DROPPED or CUT), one for each request that matches.

    method: a pattern for the method and the target, such as `PUT|POST` or `GET .*alt=media`.
    always: a fault for every matching request.
    every: `left` begins anew, and goes to every so many-th matching request only.
    unconditional: conditions of writes are taken off, as by a server that does not know them.
    seen: (method, target) of every request.
    """

    left: list[str] = field(default_factory=list)
    matching: str = ".*"
    always: str = ""
    every: int = 0
    unconditional: bool = False
    seen: list[tuple[str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next(self, method: str, target: str) -> str:
        """The fault of one request, or an empty text."""
        with self.lock:
            self.seen.append((method, target))
            if not re.search(self.matching, f"{method} {target}"):
                return ""
            if self.always:
                return self.always
            if self.every:
                turn, between = divmod(len(self.seen), self.every)
                return "" if between else self.left[turn % len(self.left)]
            return self.left.pop(0) if self.left else ""


class _Handler(BaseHTTPRequestHandler):
    """Hands one request on."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chunks = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _hang_up(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _refuse(self, status: int) -> None:
        code, message = REASONS[status]
        if self.server.scheme == "s3":
            body = f'<?xml version="1.0"?><Error><Code>{code}</Code><Message>{message}</Message></Error>'
        else:
            body = f'{{"error": {{"code": {status}, "message": "{message}"}}}}'
        if self.command == "HEAD":
            body = ""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def _tell(self, stored: int) -> None:
        """What GCS answers to a session's "how much do you have"; the emulator would make the object of it."""
        self.send_response(200 if stored == DONE else 308)
        if stored > 0:
            self.send_header("Range", f"bytes=0-{stored - 1}")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def handle_one(self) -> None:
        """Every method."""
        body = self._body()
        faults = self.server.faults
        fault = faults.next(self.command, self.path)
        if fault == DROPPED:
            return self._hang_up()
        if STATUS.fullmatch(fault):
            return self._refuse(int(fault))
        session = re.search(r"upload_id=(\w+)", self.path)
        asked = self.headers.get("Content-Range", "")
        if session and asked.startswith("bytes */"):
            return self._hang_up() if fault else self._tell(self.server.stored.get(session[1], 0))
        target, headers = self.path, dict(self.headers.items())
        for name in ("Transfer-Encoding", "Expect"):
            headers.pop(name, None)
        headers["Content-Length"] = str(len(body))
        if faults.unconditional:
            headers.pop("If-None-Match", None)
            target = target.replace("ifGenerationMatch=0", "")
        connection = http.client.HTTPConnection("127.0.0.1", urlsplit(self.server.behind).port, timeout=60)
        connection.request(self.command, target, body=body, headers=headers)
        with contextlib.closing(connection):
            reply = connection.getresponse()
            content = reply.read()
            if session and asked:
                last = int(asked.partition("/")[0].rpartition("-")[2])
                self.server.stored[session[1]] = last + 1 if reply.status == 308 else DONE
            if fault == LOST or (fault == CUT and not content):
                return self._hang_up()
            self.send_response(reply.status)
            for name, value in reply.getheaders():
                if name.lower() not in ("transfer-encoding", "connection", "content-length", "date", "server"):
                    self.send_header(name, value.replace(self.server.behind, self.server.address))
            length = reply.getheader("Content-Length") if self.command == "HEAD" else str(len(content))
            self.send_header("Content-Length", length or "0")
            self.end_headers()
            if fault == CUT:
                self.wfile.write(content[: len(content) // 2])
                return self._hang_up()
            self.wfile.write(content)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_one

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, behind: str, scheme: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind = behind
        self.scheme = scheme
        self.address = f"http://127.0.0.1:{self.server_address[1]}"
        self.faults = Faults()
        self.stored: dict[str, int] = {}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is none of ours."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextlib.contextmanager
def proxy(behind: str, scheme: str) -> Iterator[tuple[str, Faults]]:
    """The address of a proxy before a server, and what goes wrong on the way."""
    server = _Server(behind, scheme)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server.address, server.faults
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)
