"""The client of Google Cloud Storage, over its JSON interface.

Conditional creation is `ifGenerationMatch=0`. The options of gcsfs (`FSSPEC_GS_…`, its configuration file) apply, and
`STORAGE_EMULATOR_HOST` as for every client of GCS.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

import aiohttp
import google.auth
import google.auth.exceptions
import requests.exceptions
from fsspec.config import apply_config
from gcsfs.core import GCSFileSystem
from gcsfs.retry import HttpError

from marin.storage.client import PAGE_KEYS, PART_BYTES, MarkingClient, Names
from marin.storage.gcs_upload import GcsUpload
from marin.storage.patience import Asking, Patience, Trouble
from marin.storage.ranged import RangedFile
from marin.storage.store import StoreError

BUSY_STATUS = frozenset({408, 409, 429, 500, 502, 503, 504})
EMULATOR = "STORAGE_EMULATOR_HOST"
SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=4.0, sock_read=30.0)
"""Of one attempt, in seconds: to connect, and between two pieces of the answer."""


def trouble_of(error: BaseException) -> Trouble | None:
    """What of the trouble may pass, or None."""
    if isinstance(error, HttpError):
        # gcsfs makes a 401 of every token that could not be renewed; here the reason counts.
        if isinstance(error.__cause__, google.auth.exceptions.RefreshError):
            reason = error.__cause__
            passing = reason.retryable or isinstance(reason.__cause__, google.auth.exceptions.TransportError)
            return Trouble.SILENT if passing else None
        return Trouble.BUSY if str(error.code).isdecimal() and int(error.code) in BUSY_STATUS else None
    if isinstance(error, requests.exceptions.ProxyError):  # how gcsfs says 502
        return Trouble.BUSY
    if isinstance(error, aiohttp.ClientSSLError | aiohttp.InvalidURL):
        return None
    silent = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, google.auth.exceptions.TransportError)
    if isinstance(error, silent):
        return Trouble.SILENT
    return Trouble.BUSY if isinstance(error, aiohttp.ClientError | TimeoutError) else None


def credentials() -> Any:
    """What Google's own libraries would use; none for an emulator.

    gcsfs alone would ask the metadata server of a machine that has none for a long time, and then go on without.
    """
    if os.environ.get(EMULATOR):
        return "anon"
    try:
        return google.auth.default(scopes=[SCOPE])[0]
    except google.auth.exceptions.DefaultCredentialsError as error:
        raise StoreError(
            f"there are no credentials for gs:// ({error}); run `gcloud auth application-default login`, or set "
            "GOOGLE_APPLICATION_CREDENTIALS to the file of a service account; FSSPEC_GS_TOKEN=anon reads public buckets"
        ) from error


class PatientGcs(GCSFileSystem):  # type: ignore[misc]
    """gcsfs with our retries in the place of its own, and with keys taken literally."""

    def __init__(self, *args: Any, patience: Patience, **kwargs: Any) -> None:
        super().__init__(*args, **{"requests_timeout": TIMEOUT, **kwargs})
        self.asking = Asking(patience, trouble_of)

    @classmethod
    def _split_path(cls, path: str, version_aware: bool = False) -> tuple[str, str, None]:
        bucket, _, key = path.partition("/")
        return bucket, key, None

    async def _request(self, method: str, path: str, *args: str, **kwargs: Any) -> Any:
        where = f"gs://{'/'.join(args[:2])}" if args else path.partition("?")[0]

        async def request(attempt: int) -> Any:
            return await self.request_once(method, path, *args, **kwargs)

        return await self.asking(request, where)

    async def request_once(self, method: str, path: str, *args: str, **kwargs: Any) -> Any:
        """(status, headers, request, body) of an answer, asked for once: what gcsfs's decorator for retries wraps."""
        return await GCSFileSystem._request.__wrapped__(self, method, path, *args, **kwargs)


class GcsClient(MarkingClient):
    """Objects of GCS, by as few requests as each takes."""

    def __init__(self, patience: Patience) -> None:
        given = apply_config(PatientGcs, {})
        token = {} if "token" in given else {"token": credentials()}
        super().__init__(PatientGcs(patience=patience, use_listings_cache=False, **token))

    def open(self, path: str, size: int) -> BinaryIO:
        return cast(BinaryIO, RangedFile(self.fs, path, size))

    def _create_marked(self, path: str, data: bytes, metadata: dict[str, str]) -> None:
        self._send(path, data, mode="create", metadata=metadata)

    def _metadata_of(self, bucket: str, key: str) -> dict[str, str]:
        found = self.fs.call("GET", "b/{}/o/{}", bucket, key, json_out=True, fields="metadata")
        return cast(dict[str, str], found.get("metadata", {}))

    def put(self, path: str, data: bytes) -> None:
        self._send(path, data)

    def _send(self, path: str, data: bytes, **options: Any) -> None:
        # In one request: parts would need a session, and a session more requests than it is worth.
        self.fs.pipe_file(path, data, chunksize=len(data) + 1, **options)

    def upload(self, path: str) -> Any:
        return GcsUpload(self, path, PART_BYTES)

    def size(self, path: str) -> int | None:
        bucket, key, _ = self.fs.split_path(path)
        try:
            found = self.fs.call("GET", "b/{}/o/{}", bucket, key, json_out=True, fields="size")
        except FileNotFoundError:
            return None
        return int(found.get("size", 0))

    def pages(self, folder: str) -> Iterator[Names]:
        bucket = folder.partition("/")[0]
        for answer in self._answers(folder, fields="items(name,size),nextPageToken"):
            yield [(f"{bucket}/{item['name']}", int(item.get("size", 0))) for item in answer.get("items", ())]

    def folders(self, folder: str) -> Iterator[list[str]]:
        skip = len(folder.partition("/")[2])
        for answer in self._answers(folder, fields="prefixes,nextPageToken", delimiter="/"):
            yield [name[skip:-1] for name in answer.get("prefixes", ())]

    def _answers(self, folder: str, **options: str) -> Iterator[dict[str, Any]]:
        """Objects: list, page by page."""
        bucket, _, prefix = folder.partition("/")
        if prefix:
            options["prefix"] = prefix
        while True:
            answer = self.fs.call("GET", "b/{}/o", bucket, json_out=True, maxResults=PAGE_KEYS, **options)
            yield answer
            if answer.get("nextPageToken") is None:
                return
            options["pageToken"] = answer["nextPageToken"]
