"""Writing WARC 1.1: one request and one response record a page, gzip per record, files of bounded size."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Any, Self

from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from marin.data.crawl.artifacts import WarcFile
from marin.data.crawl.fetch import Fetched

OpenFile = Callable[[str], AbstractContextManager[Any]]

SOFTWARE = "marin"


class Archive:
    """Writes fetched pages into ``<stem>-00000.warc.gz``, ``-00001`` …; a file is opened with its first page.

    Use as a context manager; ``files`` is complete once the block has ended without an exception.
    """

    def __init__(self, open_file: OpenFile, stem: str, *, file_bytes: int, description: str) -> None:
        self.files: tuple[WarcFile, ...] = ()
        self._open_file = open_file
        self._stem = stem
        self._file_bytes = file_bytes
        self._description = description
        self._open: _OpenWarc | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open is None:
            return
        if kind is None:
            self._finish()
        else:
            self._open.stack.__exit__(kind, error, trace)

    def write(self, page: Fetched) -> None:
        """Archive one exchange."""
        if self._open is None:
            self._open = _OpenWarc(
                self._open_file, f"{self._stem}-{len(self.files):05d}.warc.gz", description=self._description
            )
        self._open.write(page)
        if self._open.stream.size >= self._file_bytes:
            self._finish()

    def _finish(self) -> None:
        if self._open is not None:
            self._open.stack.close()
            self.files += (WarcFile(name=self._open.name, url=None, size=self._open.stream.size),)
            self._open = None


class _OpenWarc:
    """One WARC file that is being written."""

    def __init__(self, open_file: OpenFile, name: str, *, description: str) -> None:
        self.name = name
        self.stack = ExitStack()
        self.stream = _CountingStream(self.stack.enter_context(open_file(name)))
        self._writer = WARCWriter(self.stream, gzip=True, warc_version="1.1")
        info = {"software": SOFTWARE, "format": "WARC File Format 1.1", "robots": "obey", "description": description}
        self._writer.write_record(self._writer.create_warcinfo_record(name.rpartition("/")[2], info))

    def write(self, page: Fetched) -> None:
        build = self._writer.create_warc_record
        response = build(
            page.url,
            "response",
            payload=io.BytesIO(page.body),
            length=len(page.body),
            http_headers=StatusAndHeaders(f"{page.status} {page.reason}", list(page.headers), protocol="HTTP/1.1"),
        )
        request = build(
            page.url,
            "request",
            http_headers=StatusAndHeaders(page.request_line, list(page.request_headers), is_http_request=True),
        )
        self._writer.write_request_response_pair(request, response)


class _CountingStream:
    """What the WARC writer needs of a file, and the number of bytes that went through."""

    def __init__(self, stream: Any) -> None:
        self.size = 0
        self._stream = stream

    def write(self, data: bytes) -> int:
        self._stream.write(data)
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        """Nothing to do: the stream is flushed when it is closed."""
