"""Listings of object stores, a page at a time.

fsspec's own `find` fetches every page before it answers, so that nobody could stop early.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Names = list[tuple[str, int]]
"""(bucket/key, size in bytes) of each object of one answer."""

PAGE_KEYS = 1000
"""What S3 and GCS give at most in one answer."""


def s3_pages(client: Any, folder: str) -> Iterator[Names]:
    """Pages of `bucket/prefix/` by ListObjectsV2."""
    bucket, _, prefix = folder.partition("/")
    token: dict[str, str] = {}
    while True:
        answer = client.call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, MaxKeys=PAGE_KEYS, **token)
        yield [(f"{bucket}/{item['Key']}", int(item["Size"])) for item in answer.get("Contents", ())]
        if not answer.get("IsTruncated"):
            return
        token = {"ContinuationToken": answer["NextContinuationToken"]}


def gcs_pages(client: Any, folder: str) -> Iterator[Names]:
    """Pages of `bucket/prefix/` by the JSON interface's Objects: list."""
    bucket, _, prefix = folder.partition("/")
    token: str | None = None
    while True:
        answer = client.call(
            "GET",
            "b/{}/o",
            bucket,
            json_out=True,
            prefix=prefix or None,
            maxResults=PAGE_KEYS,
            pageToken=token,
            fields="items(name,size),nextPageToken",
        )
        yield [(f"{bucket}/{item['name']}", int(item.get("size", 0))) for item in answer.get("items", ())]
        token = answer.get("nextPageToken")
        if token is None:
            return


def s3_folders(client: Any, folder: str) -> Iterator[list[str]]:
    """Names directly below `bucket/prefix/` that have something below themselves, by page."""
    bucket, _, prefix = folder.partition("/")
    token: dict[str, str] = {}
    while True:
        answer = client.call_s3(
            "list_objects_v2", Bucket=bucket, Prefix=prefix, Delimiter="/", MaxKeys=PAGE_KEYS, **token
        )
        yield [item["Prefix"][len(prefix) : -1] for item in answer.get("CommonPrefixes", ())]
        if not answer.get("IsTruncated"):
            return
        token = {"ContinuationToken": answer["NextContinuationToken"]}


def gcs_folders(client: Any, folder: str) -> Iterator[list[str]]:
    """Names directly below `bucket/prefix/` that have something below themselves, by page."""
    bucket, _, prefix = folder.partition("/")
    token: str | None = None
    while True:
        answer = client.call(
            "GET",
            "b/{}/o",
            bucket,
            json_out=True,
            prefix=prefix or None,
            delimiter="/",
            maxResults=PAGE_KEYS,
            pageToken=token,
            fields="prefixes,nextPageToken",
        )
        yield [name[len(prefix) : -1] for name in answer.get("prefixes", ())]
        token = answer.get("nextPageToken")
        if token is None:
            return


def whole_listing(client: Any, folder: str) -> Iterator[Names]:
    """One page with everything, for the other stores that fsspec knows."""
    found: dict[str, dict[str, Any]] = client.find(folder, detail=True)
    start = folder.lstrip("/")
    names = ((name.lstrip("/"), int(info["size"])) for name, info in found.items())
    yield [(name, size) for name, size in names if name.startswith(start)]


PAGES: dict[str, Callable[[Any, str], Iterator[Names]]] = {
    "s3": s3_pages,
    "s3a": s3_pages,
    "gs": gcs_pages,
    "gcs": gcs_pages,
}
"""By scheme."""

FOLDERS: dict[str, Callable[[Any, str], Iterator[list[str]]]] = {
    "s3": s3_folders,
    "s3a": s3_folders,
    "gs": gcs_folders,
    "gcs": gcs_folders,
}
"""By scheme."""
