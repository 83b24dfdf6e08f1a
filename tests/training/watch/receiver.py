"""A receiver of webhooks on loopback."""

from __future__ import annotations

import http.server
import json
import threading
import time
from typing import Any


class Receiver:
    """A web server on loopback that answers with the given codes, then 200."""

    def __init__(self, codes: list[int], delay: float = 0.0) -> None:
        self.received: list[dict[str, Any]] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                time.sleep(delay)
                body = self.rfile.read(int(self.headers["Content-Length"]))
                code = codes.pop(0) if codes else 200
                if code == 200:
                    outer.received.append(json.loads(body))
                self.send_response(code)
                self.end_headers()

            def log_message(self, *arguments: Any) -> None: ...

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hooks/very-secret"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
