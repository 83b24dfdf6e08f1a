"""Serves the embedded site on loopback, as a process of its own.

Run as ``python -m marin.data.crawl.site.server``: reads one JSON list of package names from the first line of standard
input, prints its port, and ends when standard input is closed, so it never outlives its parent.
"""

from __future__ import annotations

import json
import socket
import socketserver
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from marin.data.crawl.site.catalogue import package_files
from marin.data.crawl.site.pages import PackageSite, Page, host_of


class Site:
    """All packages by host name. One package renders one page at a time; different packages do not wait for another."""

    def __init__(self, packages: Iterable[str]) -> None:
        self._names = {host_of(name): name for name in packages}
        self._sites: dict[str, PackageSite] = {}
        self._locks = {host: threading.Lock() for host in self._names}
        self.requests: Counter[str] = Counter()

    def page(self, host: str, path: str) -> Page | None:
        """The page at a host and path, or None when there is none."""
        host = host.partition(":")[0].lower()
        self.requests[path] += 1
        if host not in self._names:
            return None
        with self._locks[host]:
            if host not in self._sites:
                self._sites[host] = PackageSite(package_files(self._names[host]), self._names)
            return self._sites[host].page(path)


class SiteServer(ThreadingHTTPServer):
    """A threaded server of one :class:`Site` on a free port of 127.0.0.1."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, site: Site) -> None:
        self.site = site
        super().__init__(("127.0.0.1", 0), _Handler)

    def server_bind(self) -> None:
        """Bind without looking up the machine's own name, which can take seconds offline."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "localhost", int(self.server_address[1])

    @property
    def port(self) -> int:
        """The port that was taken."""
        return int(self.server_address[1])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30
    server: SiteServer

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def do_GET(self) -> None:
        try:
            page = self.server.site.page(self.headers.get("Host", ""), self.path)
        except LookupError as error:
            self._answer(500, "Internal Server Error", Page("text/plain; charset=utf-8", str(error).encode()))
            return
        if page is None:
            self._answer(404, "Not Found", Page("text/html; charset=utf-8", b"<html><body>Not found</body></html>"))
        else:
            self._answer(200, "OK", page)

    def _answer(self, status: int, phrase: str, page: Page) -> None:
        head = (
            f"HTTP/1.1 {status} {phrase}\r\nServer: marin-docs\r\nContent-Type: {page.content_type}\r\n"
            f"Content-Length: {len(page.body)}\r\n\r\n"
        )
        self.wfile.write(head.encode() + page.body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are archived by the crawler; a second log would say the same."""


def main() -> None:
    """Serve the packages named on standard input until it is closed."""
    warnings.simplefilter("ignore")
    server = SiteServer(Site(json.loads(sys.stdin.readline())))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.port, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
