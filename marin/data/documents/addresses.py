"""URLs in one form, so that a document is found by its address however that is written down."""

from __future__ import annotations

from urllib.parse import urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}


def canonical_url(url: str) -> str:
    """A URL without what seldom tells pages apart: scheme, case of the host, default port, fragment, a last slash.

    For comparing only; the result is no URL. Never raises.

    >>> canonical_url("HTTP://Example.org:80/a/#top")
    'example.org/a'
    """
    text = url.strip()
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        return text
    if not host:
        return text
    place = host if port in (None, _DEFAULT_PORTS.get(parts.scheme.lower())) else f"{host}:{port}"
    query = f"?{parts.query}" if parts.query else ""
    return f"{place}{parts.path.rstrip('/')}{query}"
