"""HTTP responses as archives keep them: headers that may not tell the truth about the body."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import brotli
import zstandard

MAX_BODY = 64 * 1024**2
"""A body that decodes to more is refused."""

_OUTPUT = 1 << 20
_ZSTD_INPUT = 1024
"""A zstd block of 4 bytes can stand for 128 KiB, so input goes in by this much at a time."""

_STATUS = re.compile("[0-9]{3}")
_TEXT_PROBE = 4096
_GZIP_MAGIC = b"\x1f\x8b\x08"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_NOT_TEXT = bytes(code for code in range(32) if code not in b"\t\n\r\x0c\x1b")


class BodyError(Exception):
    """A body that cannot be had; the message is the reason under which the page is counted."""


@dataclass(frozen=True, slots=True)
class Response:
    """A parsed HTTP response; header names are in lower case, of repeated headers the last one counts."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Body:
    """A decoded body, and the labels that turned out to be wrong."""

    data: bytes
    flags: tuple[str, ...]


def parse_response(block: bytes) -> Response | None:
    """The response in a record's block, or None when it is not HTTP."""
    if not block.startswith(b"HTTP/"):
        return None
    end, blank = block.find(b"\r\n\r\n"), 4
    bare = block.find(b"\n\n", 0, end if end >= 0 else len(block))
    if bare >= 0:
        end, blank = bare, 2
    elif end < 0:
        end, blank = len(block), 0
    # By line feeds alone: in Latin-1, other bytes of a header value are line breaks to str.splitlines.
    status_line, *lines = block[:end].decode("latin-1").split("\n")
    body = block[end + blank :]
    parts = status_line.split(None, 2)
    status = int(parts[1]) if len(parts) > 1 and _STATUS.fullmatch(parts[1]) else 0
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            headers[name.strip().lower()] = value.strip()
    return Response(status, headers, body)


def decode_body(response: Response, *, max_bytes: int = MAX_BODY) -> Body:
    """The body without transfer and content encodings.

    A label whose decoder fails at the start is taken to be wrong, and the body is used as it stands; a compressed body
    that carries no label is decompressed too. A chunked body that breaks midway is kept up to the break.

    Raises:
        BodyError: ``broken_body`` (a compressed body breaks midway) or ``body_too_large``.
    """
    data, flags = response.body, []
    if "chunked" in response.headers.get("transfer-encoding", "").lower():
        data, flag = _unchunk(data)
        flags += [flag] if flag else []
    labels = [label.strip().lower() for label in response.headers.get("content-encoding", "").split(",")]
    for label in reversed([label for label in labels if label not in ("", "identity", "none", "utf-8")]):
        decoder = _DECODERS.get(label)
        if decoder is None:
            flags.append("content_encoding_unknown")
            continue
        decoded = _try(decoder, data, max_bytes)
        if decoded is None:
            flags.append("content_encoding_wrong")
        else:
            data = decoded
    unlabelled = _gzip if data.startswith(_GZIP_MAGIC) else _zstd if data.startswith(_ZSTD_MAGIC) else None
    if unlabelled is not None:
        decoded = _try(unlabelled, data, max_bytes)
        if decoded is not None:
            data = decoded
            flags.append("content_encoding_missing")
    if len(data) > max_bytes:
        raise BodyError("body_too_large")
    return Body(data, tuple(flags))


def looks_like_text(data: bytes) -> bool:
    """Whether bytes hold no control characters that text does not have."""
    probe = data[:_TEXT_PROBE]
    return len(probe.translate(None, _NOT_TEXT)) == len(probe)


Decoder = Callable[[bytes, int], bytes]


class _Undecodable(Exception):
    """Raised by decoders; ``produced`` tells whether output came before the fault."""

    def __init__(self, *, produced: bool) -> None:
        super().__init__()
        self.produced = produced


def _try(decoder: Decoder, data: bytes, max_bytes: int) -> bytes | None:
    """The decoded bytes, or None when the data was never encoded this way."""
    if not data:
        return data
    try:
        return decoder(data, max_bytes)
    except _Undecodable as error:
        if not error.produced or looks_like_text(data):
            return None
        raise BodyError("broken_body") from None


def _inflate(data: bytes, window: int, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while data:
        inflater = zlib.decompressobj(window)
        while data and not inflater.eof:
            try:
                part = inflater.decompress(data, _OUTPUT)
            except zlib.error:
                raise _Undecodable(produced=size > 0) from None
            size = _within(size + len(part), max_bytes)
            parts.append(part)
            data = inflater.unconsumed_tail
            if not data and not inflater.eof and not part:
                break
        if not inflater.eof:
            raise _Undecodable(produced=True)
        data = inflater.unused_data
        if not data.startswith(_GZIP_MAGIC):
            break
    return b"".join(parts)


def _gzip(data: bytes, max_bytes: int) -> bytes:
    return _inflate(data, 31, max_bytes)


def _deflate(data: bytes, max_bytes: int) -> bytes:
    """Deflate with its zlib frame, as the standard says, or bare, as some servers send it."""
    try:
        return _inflate(data, 15, max_bytes)
    except _Undecodable as error:
        if error.produced:
            raise
    return _inflate(data, -15, max_bytes)


def _brotli(data: bytes, max_bytes: int) -> bytes:
    decompressor = brotli.Decompressor()
    parts: list[bytes] = []
    size = 0
    while not decompressor.is_finished():
        try:
            part = decompressor.process(data, output_buffer_limit=_OUTPUT)
        except brotli.error:
            raise _Undecodable(produced=size > 0) from None
        if not part and decompressor.can_accept_more_data():
            raise _Undecodable(produced=True)
        data = b""
        size = _within(size + len(part), max_bytes)
        parts.append(part)
    return b"".join(parts)


def _zstd(data: bytes, max_bytes: int) -> bytes:
    decompressor = zstandard.ZstdDecompressor().decompressobj()
    parts: list[bytes] = []
    size = 0
    for start in range(0, len(data), _ZSTD_INPUT):
        try:
            part = decompressor.decompress(data[start : start + _ZSTD_INPUT])
        except zstandard.ZstdError:
            raise _Undecodable(produced=size > 0) from None
        size = _within(size + len(part), max_bytes)
        parts.append(part)
        if decompressor.eof:
            return b"".join(parts)
    raise _Undecodable(produced=size > 0)


def _within(size: int, max_bytes: int) -> int:
    if size > max_bytes:
        raise BodyError("body_too_large")
    return size


_DECODERS: dict[str, Decoder] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}


def _unchunk(data: bytes) -> tuple[bytes, str | None]:
    """The body without chunk framing, and what was wrong with it."""
    parts: list[bytes] = []
    position = 0
    while True:
        end = data.find(b"\n", position, position + _TEXT_PROBE)
        line = data[position : end if end >= 0 else position].split(b";")[0].strip()
        try:
            size = int(line, 16) if line and line.isalnum() else -1
        except ValueError:
            size = -1
        if size < 0:
            return (b"".join(parts), "chunks_broken") if parts else (data, "transfer_encoding_wrong")
        if size == 0:
            return b"".join(parts), None
        start = end + 1
        chunk = data[start : start + size]
        if len(chunk) < size and not parts:
            return data, "transfer_encoding_wrong"
        parts.append(chunk)
        if len(chunk) < size:
            return b"".join(parts), "chunks_broken"
        position = start + size
        while data[position : position + 1] in (b"\r", b"\n"):
            position += 1
