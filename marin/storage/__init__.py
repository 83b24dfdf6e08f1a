"""Object-store primitives: everything that marin keeps goes through a `Store`.

The whole contract is: read, open, list, create-if-absent, checksummed writers. Records and claims are only ever
created, never renamed and never overwritten; see `marin.storage.store` for what is promised on a crash.
"""

from marin.storage.counted import CountedStore
from marin.storage.store import (
    AlreadyExists,
    InvalidKey,
    InvalidPrefix,
    MissingObject,
    ObjectInfo,
    Page,
    Store,
    StoreError,
    StoreUnavailable,
    StoreUnreachable,
    open_store,
    split_url,
)
from marin.storage.wrapped import WrappedStore
from marin.storage.writer import ChecksummedWriter

__all__ = [
    "AlreadyExists",
    "ChecksummedWriter",
    "CountedStore",
    "InvalidKey",
    "InvalidPrefix",
    "MissingObject",
    "ObjectInfo",
    "Page",
    "Store",
    "StoreError",
    "StoreUnavailable",
    "StoreUnreachable",
    "WrappedStore",
    "open_store",
    "split_url",
]
