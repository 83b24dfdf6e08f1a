"""The client of S3 and of what speaks its protocol.

Conditional creation is `IfNoneMatch: *`. The options of s3fs (`FSSPEC_S3_…`, its configuration file) and of botocore
(`AWS_…`) apply.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from aiohttp import ClientPayloadError
from botocore.exceptions import (
    ConnectionError as NoConnection,
)
from botocore.exceptions import (
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    IncompleteReadError,
    ProxyConnectionError,
    SSLError,
)
from botocore.parsers import ResponseParserError
from fsspec.asyn import sync_wrapper
from s3fs import S3FileSystem

from marin.storage.client import PAGE_KEYS, PART_BYTES, MarkingClient, Names
from marin.storage.patience import Asking, Patience, Trouble
from marin.storage.ranged import RangedFile

BUSY_STATUS = frozenset({408, 429, 500, 502, 503, 504})
BUSY_CODES = frozenset(
    {
        "ConditionalRequestConflict",  # the loser of a race is to try again: the winner may yet fail
        "InternalError",
        "OperationAborted",
        "RequestThrottled",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
BROKEN = (HTTPClientError, IncompleteReadError, ResponseParserError, ClientPayloadError)
CONNECTIONS = 64
CONNECT_SECONDS = 4.0
READ_SECONDS = 20.0
PUT_BYTES = 5 * 2**30
"""The most that S3 takes in one request."""


def response_of(error: BaseException) -> tuple[int, str]:
    """(status, code) of the response behind an error of s3fs; (0, "") when there was none."""
    response = getattr(error.__cause__, "response", None)
    if not isinstance(response, dict):
        return 0, ""
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return int(status), str(response.get("Error", {}).get("Code", ""))


def trouble_of(error: BaseException) -> Trouble | None:
    """What of the trouble may pass, or None."""
    status, code = response_of(error)
    if status in BUSY_STATUS or code in BUSY_CODES:
        return Trouble.BUSY
    if isinstance(error, SSLError):
        return None
    if isinstance(error, EndpointConnectionError | ConnectTimeoutError | ProxyConnectionError | NoConnection):
        return Trouble.SILENT
    return Trouble.BUSY if isinstance(error, BROKEN) else None


class PatientS3(S3FileSystem):  # type: ignore[misc]
    """s3fs with our retries in the place of its own and of botocore's, and with keys taken literally."""

    retries = 1

    def __init__(self, *args: Any, patience: Patience, **kwargs: Any) -> None:
        config = {
            "retries": {"total_max_attempts": 1},
            "max_pool_connections": CONNECTIONS,
            "connect_timeout": CONNECT_SECONDS,
            "read_timeout": READ_SECONDS,
            **(kwargs.pop("config_kwargs", None) or {}),
        }
        super().__init__(*args, config_kwargs=config, **kwargs)
        self.asking = Asking(patience, trouble_of)

    def split_path(self, path: str) -> tuple[str, str, None]:
        bucket, _, key = path.partition("/")
        return bucket, key, None

    async def _call_s3(self, method: str, *akwarglist: Any, **kwargs: Any) -> Any:
        where = f"s3://{kwargs.get('Bucket', '')}/{kwargs.get('Key', kwargs.get('Prefix', ''))}"

        async def request(attempt: int) -> Any:
            try:
                return await S3FileSystem._call_s3(self, method, *akwarglist, **kwargs)
            except OSError as error:
                code = response_of(error)[1]
                # s3fs knows the refusal only by a field that not every S3 server sends.
                if code == "PreconditionFailed" and "IfNoneMatch" in kwargs:
                    raise FileExistsError(where) from error
                again = attempt > 1 and method == "complete_multipart_upload" and code == "NoSuchUpload"
                if again and await self._has_parts(**kwargs):
                    return {}
                raise

        return await self.asking(request, where)

    # s3fs binds its own at the definition of the class.
    call_s3 = sync_wrapper(_call_s3)

    async def _has_parts(self, *, Bucket: str, Key: str, MultipartUpload: dict[str, Any], **_: Any) -> bool:
        """Whether an object of that many parts lies there: what an upload leaves whose last reply was lost."""
        try:
            head = await self._call_s3("head_object", Bucket=Bucket, Key=Key)
        except FileNotFoundError:
            return False
        return str(head.get("ETag", "")).strip('"').endswith(f"-{len(MultipartUpload['Parts'])}")

    async def _cat_file(self, path: str, *args: Any, **kwargs: Any) -> bytes:
        async def request(attempt: int) -> bytes:
            return cast(bytes, await S3FileSystem._cat_file(self, path, *args, **kwargs))

        # The request is asked again within; here it is the body that broke off.
        return await self.asking(request, f"s3://{path}")


class S3Client(MarkingClient):
    """Objects of S3, by as few requests as each takes."""

    def __init__(self, patience: Patience) -> None:
        super().__init__(PatientS3(patience=patience, use_listings_cache=False))

    def read(self, path: str) -> bytes:
        # With more than one connection s3fs would ask for the size first.
        return cast(bytes, self.fs.cat_file(path, max_concurrency=1))

    def open(self, path: str, size: int) -> BinaryIO:
        return cast(BinaryIO, RangedFile(self.fs, path, size))

    def _create_marked(self, path: str, data: bytes, metadata: dict[str, str]) -> None:
        self.fs.pipe_file(path, data, mode="create", chunksize=PUT_BYTES, Metadata=metadata)

    def _metadata_of(self, bucket: str, key: str) -> dict[str, str]:
        return cast(dict[str, str], self.fs.call_s3("head_object", Bucket=bucket, Key=key).get("Metadata", {}))

    def put(self, path: str, data: bytes) -> None:
        self.fs.pipe_file(path, data, chunksize=PUT_BYTES)

    def upload(self, path: str) -> Any:
        return self.fs.open(path, "wb", block_size=PART_BYTES)

    def size(self, path: str) -> int | None:
        bucket, key, _ = self.fs.split_path(path)
        try:
            return int(self.fs.call_s3("head_object", Bucket=bucket, Key=key)["ContentLength"])
        except FileNotFoundError:
            return None

    def pages(self, folder: str) -> Iterator[Names]:
        bucket = folder.partition("/")[0]
        for answer in self._answers(folder):
            yield [(f"{bucket}/{item['Key']}", int(item["Size"])) for item in answer.get("Contents", ())]

    def folders(self, folder: str) -> Iterator[list[str]]:
        skip = len(folder.partition("/")[2])
        for answer in self._answers(folder, Delimiter="/"):
            yield [item["Prefix"][skip:-1] for item in answer.get("CommonPrefixes", ())]

    def _answers(self, folder: str, **options: str) -> Iterator[dict[str, Any]]:
        """ListObjectsV2, page by page."""
        bucket, _, prefix = folder.partition("/")
        while True:
            answer = self.fs.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, MaxKeys=PAGE_KEYS, **options)
            yield answer
            if not answer.get("IsTruncated"):
                return
            options["ContinuationToken"] = answer["NextContinuationToken"]
