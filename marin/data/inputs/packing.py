"""Unpacking a stream by what it begins with; an end that comes too early is said, and never taken for the end.

The readers that fsspec chooses by a file's name end a cut zstd stream without a word, and after its first frame.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from typing import Any, BinaryIO, Literal, cast

import zstandard

from marin.execution import StepError

Damage = Literal["truncated", "damaged"]

_MAGICS: tuple[tuple[bytes, str], ...] = (
    (b"\x1f\x8b\x08", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"PK\x03\x04", "zip"),
)
_BZIP2_BLOCK = (b"\x31\x41\x59\x26\x53\x59", b"\x17\x72\x45\x38\x50\x90")
_HEAD = 10
_BUFFER = 256 * 1024
_ZSTD_INPUT = 1024
"""A zstd block of a few bytes can stand for 128 KiB, so input goes in by this much at a time."""
_ZSTD_WINDOW = 1 << 31


class PackingError(Exception):
    """A packed stream that cannot be read on; ``damage`` is the reason under which it is counted."""

    def __init__(self, damage: Damage) -> None:
        super().__init__(f"the packed stream is {damage}")
        self.damage: Damage = damage


def unpacked(stream: io.RawIOBase, name: str) -> io.BufferedReader:
    """The bytes in a stream that may be packed with gzip, bzip2, xz or zstd, in one or several parts.

    The first bytes decide, and not the name: files are named for what they were before a server unpacked them.

    Raises:
        StepError: it is a zip archive, which may hold several files.
        PackingError: while it is read, where the packing is cut or damaged.
    """
    raw: io.BufferedReader = io.BufferedReader(stream, _BUFFER)
    kind = _kind_of(raw.peek(_HEAD)[:_HEAD])
    if kind is None:
        return raw
    if kind == "zip":
        raw.close()
        raise StepError(f"{name} is a zip archive; unpack it, or pack each file with gzip or zstd")
    source = cast(BinaryIO, raw)
    inner: dict[str, Callable[[], Any]] = {
        "gzip": lambda: gzip.GzipFile(fileobj=source, mode="rb"),
        "bzip2": lambda: _Streams(source, bz2.BZ2Decompressor),
        "xz": lambda: _Streams(source, lzma.LZMADecompressor),
        "zstd": lambda: _ZstdFrames(source),
    }
    return io.BufferedReader(_Unpacked(inner[kind](), raw), _BUFFER)


def _kind_of(head: bytes) -> str | None:
    kind = next((kind for magic, kind in _MAGICS if head.startswith(magic)), None)
    if kind == "bzip2" and head[4:] not in _BZIP2_BLOCK:
        return None
    return kind


class _Unpacked(io.RawIOBase):
    """The reader of a packing, with one error for all kinds of damage."""

    def __init__(self, inner: Any, raw: io.BufferedReader) -> None:
        super().__init__()
        self._inner = inner
        self._raw = raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            # One read of the source at a time: a longer one would keep what came before an error to itself.
            data = self._inner.read1(len(buffer))
        except EOFError:
            raise PackingError("truncated") from None
        except (zlib.error, lzma.LZMAError, zstandard.ZstdError, gzip.BadGzipFile):
            raise PackingError("damaged") from None
        except OSError as error:
            # bz2 says so with a bare OSError; those of a disk have a number.
            if type(error) is OSError and error.errno is None:
                raise PackingError("damaged") from None
            raise
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._inner.close()
            self._raw.close()
        super().close()


class _Streams:
    """All bzip2 or xz streams of a file, one after the other.

    The standard library's readers take what cannot be read behind the first stream for the end.
    """

    def __init__(self, source: BinaryIO, begin: Callable[[], Any]) -> None:
        self._source = source
        self._begin = begin
        self._stream: Any = None
        self._input = b""

    def close(self) -> None:
        """Nothing to do: the source is closed by whoever opened it."""

    def read1(self, size: int) -> bytes:
        """Up to ``size`` bytes, none only at the end.

        Raises:
            EOFError: the file ends within a stream.
        """
        while self._stream is not None or self._next():
            if self._stream.needs_input and not self._input:
                self._input = self._source.read(_BUFFER)
                if not self._input:
                    raise EOFError("the file ends within a packed stream")
            given, self._input = (self._input, b"") if self._stream.needs_input else (b"", self._input)
            data: bytes = self._stream.decompress(given, size)
            if self._stream.eof:
                self._input = self._stream.unused_data
                self._stream = None
            if data:
                return data
        return b""

    def _next(self) -> bool:
        """Begin the next stream; False at the end of the file. Zeros between streams are padding."""
        self._input = self._input.lstrip(b"\0")
        while not self._input:
            data = self._source.read(_BUFFER)
            if not data:
                return False
            self._input = data.lstrip(b"\0")
        self._stream = self._begin()
        return True


class _ZstdFrames:
    """All frames of a zstd stream, one after the other."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self._context = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
        self._frame: Any = None
        self._input = b""
        self._output = memoryview(b"")

    def close(self) -> None:
        """Nothing to do: the source is closed by whoever opened it."""

    def read1(self, size: int) -> bytes:
        """Up to ``size`` bytes, none only at the end.

        Raises:
            EOFError: the stream ends within a frame.
        """
        while not self._output and self._fill():
            pass
        data = bytes(self._output[:size])
        self._output = self._output[size:]
        return data

    def _fill(self) -> bool:
        """Take in some input; False at the end of the stream."""
        self._input = self._input or self._source.read(_ZSTD_INPUT)
        if not self._input:
            if self._frame is not None:
                raise EOFError("the stream ends within a zstd frame")
            return False
        if self._frame is None:
            self._frame = self._context.decompressobj()
        self._output = memoryview(self._frame.decompress(self._input))
        self._input = self._frame.unused_data if self._frame.eof else b""
        if self._frame.eof:
            self._frame = None
        return True
