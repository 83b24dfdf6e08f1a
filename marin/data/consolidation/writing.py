"""Writing the documents that stay, and the fates of all.

Imports pyarrow and numpy; import this module inside step bodies only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from marin.data.consolidation.bundles import ROW_GROUP_BYTES, Bundle, Part, cell_stem
from marin.data.consolidation.counts import Count, Tally
from marin.data.consolidation.decide import TAKEDOWN
from marin.data.consolidation.fates import write_fates
from marin.data.consolidation.finish import finished
from marin.data.consolidation.holders import load_left
from marin.data.consolidation.report import SCORE_BINS, Sample
from marin.data.consolidation.rows import Cell, Rows, rows_of
from marin.data.consolidation.samples import KEPT, Rank, SampleFile, Sampler, excerpt_of, hash_of, store_samples
from marin.data.consolidation.settle import load_elsewhere, settle
from marin.data.consolidation.verdicts import unpack
from marin.data.documents.artifacts import DocumentShard
from marin.data.documents.io import DocumentWriter
from marin.data.documents.licences import licence_of
from marin.execution import Flow, current_run

_SEPARATOR = "\n[…]\n"


@dataclass(frozen=True)
class Written:
    """What one bundle came back with."""

    shards: tuple[DocumentShard, ...]
    samples: SampleFile
    counts: tuple[Count, ...]


def write_bundle(bundle: Bundle) -> Written:
    """Write the documents that stay, one file for each split, topic and bucket, in one pass over the shards.

    Holds the verdicts on one shard, a batch of its documents, and up to one row group of every cell.
    """
    with ExitStack() as stack:
        writer = _BundleWriter(bundle, stack)
        for part in bundle.parts:
            writer.write(part)
    shards = tuple(shard for _, cell in sorted(writer.cells.items()) for shard in cell.writer.shards)
    return Written(shards, store_samples(writer.sampler), writer.tally.counts())


class _BundleWriter:
    """Writes the shards of a bundle one after the other."""

    def __init__(self, bundle: Bundle, stack: ExitStack) -> None:
        self.cells: dict[Cell, _CellWriter] = {}
        self.tally = Tally()
        self.sampler = Sampler(bundle.policy)
        self._bundle = bundle
        self._elsewhere = load_elsewhere(bundle.heirs, bundle.gone)
        self._left = load_left(bundle.left)
        self._stack = stack
        self._licence = bundle.policy.licence.default_of(bundle.source)
        self._done = 0

    def write(self, part: Part) -> None:
        """Write what stays of a shard, and the fates of all of it."""
        run = current_run()
        place, policy = part.place, self._bundle.policy
        verdicts = unpack(run.load_intermediate(part.verdicts))
        settled = settle(verdicts, place.start, self._elsewhere, policy)
        fates: list[pa.Table] = []
        dropped: Counter[str] = Counter()
        for rows in rows_of(place, verdicts, settled, self._left, self._bundle):
            done = finished(rows, policy.personal)
            self._count(rows)
            for treatment, found in (("masked", done.masked), ("flagged", done.flagged)):
                self.tally.add_all("personal", {(kind, treatment): count for kind, count in found.items()})
            self._sample(rows, done.table)
            self._store(rows, done.table)
            fates.append(rows.fates(self._bundle.number))
            dropped.update(reason for reason in rows.reasons if reason is not None)
            self._done += len(rows)
            run.progress(self._done, self._bundle.rows)
        self.sampler.explain(place)
        read = place.shard.rows
        kept = read - sum(dropped.values())
        run.account(Flow(unit="documents", read=read, kept=kept, dropped=dict(sorted(dropped.items()))))
        self.tally.add_all("dropped", {(reason, "documents"): count for reason, count in dropped.items()})
        write_fates(run.write, place.pages, place.shard, fates)

    def _count(self, rows: Rows) -> None:
        """Count every document under each figure of the report."""
        fates = ["kept" if stays else "dropped" for stays in rows.stays]
        lengths = pc.utf8_length(rows.documents.column("text")).to_numpy(zero_copy_only=False)
        scores = rows.verdicts.column("score").to_numpy()
        figures: dict[str, Sequence[str]] = {
            "source": [self._bundle.source] * len(rows),
            "language": rows.column("language"),
            "licence": [licence_of(one, self._licence) for one in rows.documents.column("metadata").to_pylist()],
            # The exponent is the number of binary digits.
            "length": np.frexp(lengths)[1].astype(str).tolist(),
            "score": np.minimum(SCORE_BINS - 1, (scores * SCORE_BINS).astype(np.int64)).astype(str).tolist(),
        }
        for figure, names in figures.items():
            self.tally.add_all(figure, Counter(zip(names, fates, strict=True)))
        for done in rows.cuts.values():
            for kind, characters in (*done.by_kind.items(), *([("", done.characters)] if done.characters else [])):
                self.tally.add_all("cut", {(kind, "documents"): 1, (kind, "characters"): characters})
            for holder, sizes in done.left.items():
                told = {"documents": 1, "passages": len(sizes), "characters": sum(sizes)}
                self.tally.add_all("left", {(holder, column): count for column, count in told.items()})

    def _sample(self, rows: Rows, stored: pa.Table) -> None:
        """Offer every document to the report: what is dropped as it came in, what stays as it is stored."""
        kept = 0
        hashes = list(map(hash_of, rows.ids))
        for at, reason in enumerate(rows.reasons):
            rank = Rank(reason or KEPT, hashes[at], rows.start + at)
            if self.sampler.wants(rank):
                text = rows.documents.column("text")[at] if reason else stored.column("text")[kept]
                # Nothing is shown of a document that was to be taken down.
                shown = "" if reason == TAKEDOWN else text.as_py()
                self.sampler.put(rank, self._shown(rows, at, rank.label, rows.whys[at] or "", shown))
            kept += reason is None
        for at, done in rows.cuts.items():
            for kind, passages in done.passages.items():
                rank = Rank(f"cut_{kind}", hashes[at], rows.start + at)
                if self.sampler.wants(rank):
                    length = len(rows.documents.column("text")[at].as_py())
                    why = f"{done.by_kind[kind]} of {length} characters"
                    self.sampler.put(rank, self._shown(rows, at, rank.label, why, _SEPARATOR.join(passages)))

    def _shown(self, rows: Rows, at: int, label: str, why: str, text: str) -> Sample:
        document_id, url = (rows.documents.column(name)[at].as_py() for name in ("id", "url"))
        return Sample(document_id, self._bundle.source, url or "", label, why, excerpt_of(text))

    def _store(self, rows: Rows, stored: pa.Table) -> None:
        """Write the documents of a batch that stay, each into its cell."""
        cells = [cell for cell, stays in zip(rows.cells, rows.stays, strict=True) if stays]
        for cell in sorted(set(cells)):
            self._cell(cell).add(stored.filter(pa.array([one == cell for one in cells], pa.bool_())))

    def _cell(self, cell: Cell) -> _CellWriter:
        if cell not in self.cells:
            split, topic, quality = cell
            writer = DocumentWriter(
                current_run().write,
                cell_stem(self._bundle.source, split, topic, quality, self._bundle.number),
                source=self._bundle.source,
                split=split,
                quality=quality,
                topic=topic,
                consolidated=True,
                row_group_bytes=ROW_GROUP_BYTES,
            )
            self.cells[cell] = self._stack.enter_context(_CellWriter(self._stack.enter_context(writer)))
        return self.cells[cell]


class _CellWriter:
    """Collects rows of one cell, so that row groups have their full size however few rows a batch brings."""

    def __init__(self, writer: DocumentWriter) -> None:
        self.writer = writer
        self._tables: list[pa.Table] = []
        self._bytes = 0

    def __enter__(self) -> _CellWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._flush()

    def add(self, table: pa.Table) -> None:
        """Add rows."""
        self._tables.append(table)
        self._bytes += table.nbytes
        if self._bytes >= ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._tables:
            self.writer.write_table(pa.concat_tables(self._tables))
        self._tables, self._bytes = [], 0
