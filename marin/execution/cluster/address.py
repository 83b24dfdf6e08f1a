"""Addresses of Ray clusters."""

from __future__ import annotations

import socket

RAY_PORT = 6379
CONNECT_SECONDS = 5.0


def split_address(address: str) -> tuple[str, int]:
    """(host, port) of `HOST`, `HOST:PORT`, `ray://HOST:PORT` or `[IPv6]:PORT`; Ray's own port where none is given."""
    rest = address.rpartition("://")[2].rstrip("/")
    host, colon, port = rest.rpartition(":")
    if not colon or not port.isdigit():
        return rest.strip("[]"), RAY_PORT
    return host.strip("[]"), int(port)


def unreachable(address: str) -> str | None:
    """Why nothing can be reached at a cluster's address, or None when something listens there.

    Ray itself waits for minutes, and says nothing that a user could use.
    """
    if address in ("auto", "local"):
        return None
    host, port = split_address(address)
    try:
        with socket.create_connection((host, port), timeout=CONNECT_SECONDS):
            return None
    except OSError as error:
        return f"nothing answers at {host}:{port} ({error})"
