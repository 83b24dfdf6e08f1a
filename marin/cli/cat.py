"""`marin cat`: a file of a step, or an object by its key."""

from __future__ import annotations

import json
import sys
from typing import BinaryIO

from marin.execution import Artifact, StepError
from marin.execution.artifact import bind
from marin.execution.planning.index import list_records
from marin.execution.reasons.selection import SHOWN, displays, find_record, keys_meant, several
from marin.execution.records import load_record
from marin.storage import MissingObject, Store

NAMED = 5
"""Files that an error names."""


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
        if file is None:
            explain_what_it_is(store, what)
        raise StepError(f"{error}; list what is there with `marin ls`, or name a step and a FILE of it") from error
    sys.stdout.buffer.flush()
    return 0


def explain_what_it_is(store: Store, what: str) -> None:
    """Raise `StepError` that names files, when what was asked for is a folder or a step."""
    folder = what.strip("/")
    found = [info.key for info in store.list(folder)] if folder else []
    if found:
        raise StepError(f"{what} is a folder; name a file of it, such as {_some(found)}")
    keys = keys_meant(store, what, list_records(store))
    if len(keys) == 1:
        record = load_record(store, keys[0])
        files = [file.name for file in record.files]
        way_out = f"name a file of it: `marin cat {what} FILE` with {_some(files)}" if files else "it has no files"
        raise StepError(f"{what} is the step {record.display}; {way_out}")
    if keys:
        raise several(what, displays(store, keys[:SHOWN]), len(keys))


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more (`marin ls`)" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


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
