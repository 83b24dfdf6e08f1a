"""A big object of GCS, sent in parts to a resumable upload session.

gcsfs sends a part again as a whole when the reply did not come. Here the session is asked first how much of it is
stored, as GCS wants it, and only the rest is sent.

https://cloud.google.com/storage/docs/performing-resumable-uploads
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from fsspec.asyn import sync
from gcsfs.core import initiate_upload
from gcsfs.retry import HttpError

from marin.storage.store import StoreUnavailable

QUANTUM_BYTES = 256 * 2**10
"""All parts but the last are multiples of it, and so is what a session has stored."""


class GcsUpload:
    """A writable file whose `close` makes the object appear and whose `discard` drops it."""

    def __init__(self, client: Any, path: str, part_bytes: int) -> None:
        self.client = client
        self.path = path
        self.part_bytes = part_bytes - part_bytes % QUANTUM_BYTES
        self.closed = False
        self._buffer = bytearray()
        self._sent = 0
        self._session: str | None = None

    def write(self, data: Any) -> int:
        """Take bytes, and send parts that are full."""
        self._buffer += data
        while len(self._buffer) > self.part_bytes:
            self._send(bytes(memoryview(self._buffer)[: self.part_bytes]), last=False)
            del self._buffer[: self.part_bytes]
        return len(data)

    def close(self) -> None:
        """Send the rest."""
        if self.closed:
            return
        if self._session is None:
            self.client.put(self.path, bytes(self._buffer))
        else:
            self._send(bytes(self._buffer), last=True)
        self._buffer.clear()
        self.closed = True

    def discard(self) -> None:
        """End the session."""
        session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(FileNotFoundError):  # it is gone already
                self.client.fs.call("DELETE", session)

    def _send(self, part: bytes, last: bool) -> None:
        fs = self.client.fs
        if self._session is None:
            bucket, key, _ = fs.split_path(self.path)
            self._session = sync(fs.loop, initiate_upload, fs, bucket, key)
        sync(fs.loop, self._send_part, part, last)
        self._sent += len(part)

    async def _send_part(self, part: bytes, last: bool) -> None:
        start, end = self._sent, self._sent + len(part)
        total = end if last else "*"

        async def request(attempt: int) -> None:
            done = start
            if attempt > 1:
                # Less than `start` would be a session that lost what it had; it then refuses the range.
                done = max(start, await self._ask("PUT", "*/*", b"", end))
            while done < end:
                before = done
                # Not PUT: a connection that breaks would make aiohttp send the bytes again, unasked.
                done = await self._ask("POST", f"{done}-{end - 1}/{total}", memoryview(part)[done - start :], end)
                if done <= before:
                    raise HttpError({"code": 503, "message": "nothing of a part was stored"})

        await self.client.fs.asking(request, f"gs://{self.path}")

    async def _ask(self, method: str, content_range: str, data: Any, end: int) -> int:
        """The bytes of the object that the session has after a request; `end` when it has made the object."""
        fs = self.client.fs
        try:
            status, headers, _, _ = await fs.request_once(
                method, self._session, headers={"Content-Range": f"bytes {content_range}"}, data=data
            )
        except FileNotFoundError as error:
            # A session may be gone because its object is made and the reply was lost.
            if await asyncio.to_thread(self.client.size, self.path) == end:
                return end
            raise StoreUnavailable(
                f"GCS has forgotten the upload of gs://{self.path} after {self._sent:,} bytes; "
                "what writes it is to start again"
            ) from error
        return end if status < 300 else stored_of(headers.get("Range"), end)


def stored_of(content_range: str | None, end: int) -> int:
    """What a session has stored, from a header `bytes=0-123`: `end`, or a multiple of the quantum below it."""
    stored = int(content_range.rpartition("-")[2]) + 1 if content_range else 0
    return end if stored >= end else stored - stored % QUANTUM_BYTES
