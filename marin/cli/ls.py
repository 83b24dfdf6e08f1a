"""`marin ls`: the steps of a prefix, the files of a step, or the objects of a folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from marin.execution import layout
from marin.execution.planning.index import RecordIndex, list_records
from marin.execution.planning.record_stream import stream_records
from marin.execution.reasons.selection import find_record
from marin.execution.records import Record
from marin.execution.running.console import number
from marin.storage import Store


def answering_records(store: Store, index: RecordIndex | None = None) -> Iterator[Record]:
    """The answering record of every step of a prefix; a damaged one is named on standard error and left out."""
    steps = sorted((index or list_records(store)).generations.items())
    for _, record in stream_records(store, (layout.record_key(*step, generation) for step, generation in steps)):
        if isinstance(record, Record):
            yield record
        else:
            print(f"damaged: {record}", file=sys.stderr)


def removed_text(record: Record, index: RecordIndex) -> str:
    """What a line says of a record that has a tombstone: the sizes that it tells are those of bytes that are gone."""
    is_buried = index.is_tombstoned(record.name, record.identity, record.generation)
    return "  bytes removed (tombstone)" if is_buried else ""


def list_things(store: Store, what: str | None) -> int:
    """Print the steps of a prefix, the files of a step, or the objects of a folder."""
    if what is None:
        return _list_steps(store)
    folder = what.strip("/")
    found = store.list(folder) if folder else []
    if found:
        for info in found:
            print(f"{info.size:>12}  {info.key}")
        return 0
    for file in find_record(store, what).files:
        print(f"{file.size:>12}  {file.name}")
    return 0


def _list_steps(store: Store) -> int:
    empty = True
    index = list_records(store)
    for record in answering_records(store, index):
        empty = False
        print(f"{number(record.size):>10}B  {record.display:<48} {record.path}{removed_text(record, index)}")
    if empty:
        print(f"no finished step in {store.url}")
    return 0
