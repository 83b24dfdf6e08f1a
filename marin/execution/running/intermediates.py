"""Files that one part of a step leaves for a later part of it: checked when they are read, made again when damaged."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from dataclasses import dataclass

from marin.execution.failures import StepError
from marin.execution.fields import RUNTIME
from marin.storage import AlreadyExists, MissingObject, Store

DAMAGED_MARK = "damaged.json"


@dataclass(frozen=True)
class Intermediate:
    """A file in the state of a step: its name, size in bytes, sha256 in hex, and its key in the store.

    It may be part of a shard's result and of a later shard's item. Where it lies is no part of that shard's key: when
    it has been made again with the same bytes, what was made from it stands.

    Attributes:
        shard: the folder of the shard that made it; empty when the step's body did.
    """

    name: str
    size: int
    sha256: str
    key: str = dataclasses.field(metadata={RUNTIME: True})
    shard: str = dataclasses.field(metadata={RUNTIME: True})


def load_intermediate(store: Store, file: Intermediate, display: str) -> bytes:
    """The bytes of an intermediate file, checked against its size and digest.

    Raises:
        StepError: it is missing or damaged. The shard that made it is marked, and the next run does it again.
    """
    try:
        data = store.read(file.key)
    except MissingObject:
        trouble = "is missing"
    else:
        if len(data) == file.size and hashlib.sha256(data).hexdigest() == file.sha256:
            return data
        trouble = f"is damaged ({len(data)} bytes of {file.size})" if len(data) != file.size else "has another digest"
    if not file.shard:
        raise StepError(f"the intermediate file {file.name!r} of {display} {trouble} ({file.key}); run it again")
    with contextlib.suppress(AlreadyExists):
        store.create(f"{file.shard}/{DAMAGED_MARK}", b"{}")
    shard = "/".join(file.shard.rsplit("/", 2)[-2:])
    raise StepError(
        f"the intermediate file {file.name!r} of {display} {trouble} ({file.key}); shard {shard} made it: run the same "
        "command again, and that shard alone is done again"
    )
