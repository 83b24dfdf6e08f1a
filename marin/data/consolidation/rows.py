"""A batch of a shard's documents, with all that has been decided of them.

Imports pyarrow and numpy; import this module inside step bodies only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from marin.data.consolidation.bundles import Bundle
from marin.data.consolidation.cutting import Cuts, CutText
from marin.data.consolidation.decide import NOTHING_LEFT
from marin.data.consolidation.fates import ROWS
from marin.data.consolidation.holders import Left
from marin.data.consolidation.places import Place
from marin.data.consolidation.settle import Settled
from marin.data.documents.io import iterate_batches
from marin.data.documents.split import split_of
from marin.execution import StepError

Cell = tuple[str, int, int]
"""Split, topic and quality bucket."""


@dataclass(frozen=True)
class Rows:
    """A batch; every list and column has an entry a document.

    Attributes:
        start: number of its first document among all.
        documents: the documents as they came in.
        verdicts: the verdicts on them.
        reasons: why each is dropped, or None.
        whys: what more there is to say, or None.
        splits: the split of each.
        cuts: what is left of the texts with repeated passages, by place in the batch, for documents that stay.
    """

    start: int
    documents: pa.RecordBatch
    verdicts: pa.Table
    reasons: list[str | None]
    whys: list[str | None]
    splits: list[str]
    cuts: dict[int, CutText]

    def __len__(self) -> int:
        return len(self.reasons)

    @property
    def stays(self) -> list[bool]:
        """Whether each stays."""
        return [reason is None for reason in self.reasons]

    @property
    def ids(self) -> list[str]:
        """The id of each."""
        return self.column("id")

    @property
    def cells(self) -> list[Cell]:
        """The cell of each."""
        return list(zip(self.splits, self.column("topic"), self.column("quality"), strict=True))

    def column(self, name: str) -> list[Any]:
        """A column of the verdicts."""
        values: list[Any] = self.verdicts.column(name).to_pylist()
        return values

    def fates(self, bundle: int) -> pa.Table:
        """Their fates, as rows of `ROWS`."""
        stays = np.array(self.stays, bool)
        passages = [self.cuts.get(at) for at in range(len(self))]
        cut = [one.characters or None if one else None for one in passages]
        left = [sum(map(sum, one.left.values())) or None if one else None for one in passages]
        columns = [
            self.verdicts.column("id"),
            pa.array(self.reasons, pa.string()),
            pa.array(self.whys, pa.string()),
            pa.array(self.splits, pa.string()),
            pa.array(self.column("quality"), pa.int16(), mask=~stays),
            pa.array(self.column("topic"), pa.int16(), mask=~stays),
            pa.array(np.full(len(self), bundle), pa.int32(), mask=~stays),
            pa.array(cut, pa.int64()),
            pa.array(left, pa.int64()),
        ]
        return pa.table(columns, schema=ROWS)


def rows_of(place: Place, verdicts: pa.Table, settled: Settled, left: Left, bundle: Bundle) -> Iterator[Rows]:
    """The documents of a shard, batch by batch.

    Raises:
        StepError: the shard's documents are not those that were judged.
    """
    cuts = Cuts(place, left) if bundle.policy.cut_repeated and place.cuts else None
    start = 0
    for batch in iterate_batches(place.pages, place.shard):
        judged = verdicts.slice(start, batch.num_rows).combine_chunks()
        if not judged.column("id").combine_chunks().equals(batch.column("id")):
            raise StepError(
                f"rows {start} to {start + batch.num_rows} of document shard {place.shard.name} are not the documents "
                "that its attributes speak of; redo the step that made the attributes"
            )
        rows = Rows(
            start=place.start + start,
            documents=batch,
            verdicts=judged,
            reasons=settled.reasons.slice(start, batch.num_rows).to_pylist(),
            whys=settled.whys.slice(start, batch.num_rows).to_pylist(),
            splits=[split_of(one, bundle.validation_share) for one in batch.column("id").to_pylist()],
            cuts={},
        )
        if cuts is not None:
            _cut(rows, start, cuts)
        yield rows
        start += batch.num_rows
    if start != place.shard.rows:
        raise StepError(
            f"document shard {place.shard.name} holds {start} rows, its record says {place.shard.rows}; "
            "redo the step that made the documents"
        )


def _cut(rows: Rows, start: int, cuts: Cuts) -> None:
    """Cut the texts of documents that stay, and drop those of which nothing is left."""
    for row in cuts.rows(start, len(rows)):
        at = row - start
        if rows.reasons[at] is not None:
            continue
        text: str = rows.documents.column("text")[at].as_py()
        done = cuts.apply(row, text)
        if done.text.strip():
            rows.cuts[at] = done
        else:
            rows.reasons[at] = NOTHING_LEFT
            rows.whys[at] = f"{done.characters} of {len(text)} characters are repeated elsewhere"
