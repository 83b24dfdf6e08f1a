"""A server on loopback that gives files by their path, and is in trouble when it is told to be."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Trouble = Callable[[str, int], str | None]
"""(path, how often the path was asked for before) to what goes wrong: "503", "429", "cut", "reset", or None."""


class Served:
    """What is served, and what was asked for.

    Attributes:
        files: content by path, such as ``"/crawl-data/x"``; may be changed while it is served.
        trouble: what goes wrong with GET requests.
        head_trouble: what goes wrong with HEAD requests.
        asked: requests so far, by method and path.
        answers: how often each status was answered.
        headers: headers of every answer, in addition to those of a plain file server.
    """

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.trouble: Trouble = lambda path, before: None
        self.head_trouble: Trouble = lambda path, before: None
        self.asked: Counter[tuple[str, str]] = Counter()
        self.answers: Counter[int] = Counter()
        self.headers: dict[str, str] = {}
        self.url = ""


@contextlib.contextmanager
def serving(files: dict[str, bytes]) -> Iterator[Served]:
    """Serve files on a free port of 127.0.0.1 for as long as the block lasts."""
    served = Served(files)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._serve("HEAD", served.head_trouble)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", "0")))
            self._serve("POST", served.trouble)

        def do_GET(self) -> None:
            self._serve("GET", served.trouble)

        def _serve(self, method: str, trouble: Trouble) -> None:
            path = self.path.partition("?")[0]
            before = served.asked[method, path]
            served.asked[method, path] += 1
            wrong = trouble(path, before)
            body = served.files.get(path)
            if wrong == "reset":
                self.connection.close()
                self.close_connection = True
                return
            if wrong in ("503", "429"):
                self._answer(int(wrong), b"later")
                return
            if body is None:
                self._answer(404, b"nothing here")
                return
            status, part, extra = 200, body, [("Accept-Ranges", "bytes"), ("ETag", f'"{hash(body):x}"')]
            wanted = self.headers.get("Range")
            if wanted:
                first, _, last = wanted.removeprefix("bytes=").partition("-")
                end = min(int(last) if last else len(body) - 1, len(body) - 1)
                status, part = 206, body[int(first) : end + 1]
                extra.append(("Content-Range", f"bytes {first}-{end}/{len(body)}"))
            self._answer(status, part, extra, cut=wrong == "cut")

        def _answer(self, status: int, body: bytes, extra: list[tuple[str, str]] = [], *, cut: bool = False) -> None:  # noqa: B006
            served.answers[status] += 1
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            for name, value in [*extra, *served.headers.items()]:
                self.send_header(name, value)
            self.end_headers()
            if self.command == "HEAD":
                return
            self.wfile.write(body[: len(body) // 2] if cut else body)
            if cut:
                self.wfile.flush()
                self.connection.close()
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    served.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def every_second(wrong: str) -> Trouble:
    """Trouble at the first, third … request for each path."""
    return lambda path, before: None if before % 2 else wrong


def at_first(wrong: str, times: int = 1) -> Trouble:
    """Trouble at the first requests for each path."""
    return lambda path, before: wrong if before < times else None
