"""`marin cat`: a file of a step, or an object by its key."""

from __future__ import annotations

import json
import sys
from typing import BinaryIO

from marin.execution import Artifact, StepError
from marin.execution.artifact import bind
from marin.execution.reasons.selection import find_record
from marin.storage import MissingObject, Store


def cat(store: Store, what: str, file: str | None, limit: int) -> int:
    """Print a file of a step, or an object by its key; of a parquet file, the first `limit` rows as JSON lines."""
    name = file or what.strip("/")
    try:
        with open_thing(store, what, file) as source:
            if name.endswith(".parquet"):
                _print_parquet(source, name, limit)
                return 0
            while chunk := source.read(1 << 20):
                sys.stdout.buffer.write(chunk)
    except MissingObject as error:
        raise StepError(f"{error}; list what is there with `marin ls`, or name a step and a FILE of it") from error
    sys.stdout.buffer.flush()
    return 0


def open_thing(store: Store, what: str, file: str | None) -> BinaryIO:
    """A stream over a step's file, which must be as its record says, or over an object of the prefix."""
    if file is None:
        return store.open(what.strip("/"))
    artifact = Artifact()
    bind(artifact, store, find_record(store, what))
    return artifact.open(file)


def _print_parquet(source: BinaryIO, name: str, limit: int) -> None:
    import pyarrow
    import pyarrow.parquet as parquet

    left = limit
    try:
        for batch in parquet.ParquetFile(source).iter_batches(batch_size=min(256, max(1, limit))):
            for row in batch.to_pylist()[:left]:
                print(json.dumps(row, ensure_ascii=False, default=str))
            left -= min(left, batch.num_rows)
            if not left:
                return
    except pyarrow.ArrowException as error:
        raise StepError(f"{name} is no whole parquet file: {str(error).splitlines()[0]}") from error
