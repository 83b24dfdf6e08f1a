"""Documents as they are stored: language set, repeated passages cut, personal data dealt with.

Imports pyarrow; import this module inside step bodies only.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from marin.data.consolidation.rows import Rows
from marin.data.documents.schema import encode_metadata, text_hash
from marin.data.filtering.personal import PersonalData
from marin.data.filtering.pii import treat


@dataclass(frozen=True)
class Finished:
    """The documents of a batch that stay, and how much personal data of each kind was masked and flagged in them."""

    table: pa.Table
    masked: Counter[str]
    flagged: Counter[str]


def finished(rows: Rows, personal: PersonalData) -> Finished:
    """The documents of a batch that stay, as they are stored."""
    stays = pa.array(rows.stays, pa.bool_())
    table = pa.Table.from_batches([rows.documents]).filter(stays)
    table = _with_column(table, "language", rows.verdicts.column("language").filter(stays).to_pylist())
    places = [at for at, stays in enumerate(rows.stays) if stays]
    columns = {name: table.column(name).to_pylist() for name in ("text", "text_hash", "metadata")}
    masked: Counter[str] = Counter()
    flagged: Counter[str] = Counter()
    changed: set[str] = set()
    for at, (place, stored) in enumerate(zip(places, columns["text"], strict=True)):
        treated = treat(rows.cuts[place].text if place in rows.cuts else stored, personal)
        masked.update(treated.masked)
        flagged.update(treated.flagged)
        if treated.text != stored:
            columns["text"][at], columns["text_hash"][at] = treated.text, text_hash(treated.text)
            changed |= {"text", "text_hash"}
        if treated.flagged:
            columns["metadata"][at] = _flagged(columns["metadata"][at], treated.flagged)
            changed.add("metadata")
    for name in sorted(changed):
        table = _with_column(table, name, columns[name])
    return Finished(table, masked, flagged)


def _flagged(metadata: str, finds: dict[str, int]) -> str:
    """Metadata that tells of personal data."""
    return encode_metadata(json.loads(metadata) | {"personal": finds})


def _with_column(table: pa.Table, name: str, values: Sequence[str | None]) -> pa.Table:
    place = table.schema.get_field_index(name)
    return table.set_column(place, table.schema.field(place), pa.array(values, pa.string()))
