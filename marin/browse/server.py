"""Serve the web view of a prefix on loopback."""

from __future__ import annotations

import socket
from typing import Any

from marin.execution.failures import StepError
from marin.storage import open_store

LOOPBACK = "127.0.0.1"


def bind(port: int) -> socket.socket:
    """A listening socket on loopback; port 0 takes any free one. Raises `StepError` where it cannot be had."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
        listener.listen(64)
    except (OSError, OverflowError) as error:
        listener.close()
        raise StepError(
            f"port {port} cannot be opened on {LOOPBACK} ({error}); choose another, or 0 for any"
        ) from error
    return listener


def serve(prefix: str, port: int = 8321) -> None:
    """Show the steps of `prefix` at http://127.0.0.1:<port>/ until interrupted. Nothing is ever written."""
    import uvicorn

    from marin.browse.app import make_app

    app: Any = make_app(open_store(prefix))
    listener = bind(port)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
    print(f"{prefix} is shown at http://{LOOPBACK}:{listener.getsockname()[1]}/ (Ctrl-C ends it)", flush=True)
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:
        pass
    finally:
        listener.close()
