"""The web view over a prefix: its steps, their files, counters and reports, read-only and on loopback."""

from marin.browse.server import serve

__all__ = ["serve"]
