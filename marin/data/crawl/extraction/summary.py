"""What became of a crawl: counters of tasks and files, brought together and checked."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from marin.data.crawl.config import ExtractConfig
from marin.data.documents.artifacts import DocumentShard
from marin.execution import Flow, StepError

logger = logging.getLogger(__name__)

FEW_DAMAGED = 10
"""A file with at most this many damaged records never fails for them."""

_OFFSETS_KEPT = 20
_FILES_SHOWN = 3


@dataclass(frozen=True)
class FileSummary:
    """What became of one WARC file, or of a part of one.

    Attributes:
        name: its name or URL.
        records: records that were read, whole or not.
        documents: documents that came out.
        truncated: it ends within a record.
        damaged: damaged stretches, each counted as one record.
        damaged_offsets: where the first of them begin.
        one_member: it is gzip as a whole, and can only be read from its start.
        crossed: parts of it whose last record reaches into the next one.
    """

    name: str
    records: int
    documents: int
    truncated: bool
    damaged: int
    damaged_offsets: tuple[int, ...]
    one_member: bool
    crossed: int

    @property
    def state(self) -> str:
        """What is wrong with it, in words."""
        damaged = [f"{self.damaged} damaged stretches"] if self.damaged else []
        return " and ".join([*(["truncated"] if self.truncated else []), *damaged]) + f" in {self.records} records"

    def joined(self, other: FileSummary) -> FileSummary:
        """With the part that follows."""
        return FileSummary(
            name=self.name,
            records=self.records + other.records,
            documents=self.documents + other.documents,
            truncated=self.truncated or other.truncated,
            damaged=self.damaged + other.damaged,
            damaged_offsets=(self.damaged_offsets + other.damaged_offsets)[:_OFFSETS_KEPT],
            one_member=self.one_member or other.one_member,
            crossed=self.crossed + other.crossed,
        )

    def check(self, config: ExtractConfig) -> None:
        """Raise `StepError` when more of a file is damaged than the configuration allows, and say what is."""
        if config.strict and (self.truncated or self.damaged):
            state = "truncated" if self.truncated else f"damaged at bytes {list(self.damaged_offsets)}"
            raise StepError(f"WARC {self.name} is {state}; extract.strict allows no such file")
        if self.damaged > max(FEW_DAMAGED, config.max_damaged * self.records):
            raise StepError(
                f"WARC {self.name}: {self.damaged} of {self.records} records are damaged, more than "
                f"extract.max_damaged = {config.max_damaged} allows; get the file again, or raise the limit"
            )
        if not self.records:
            logger.warning("%s holds no record at all", self.name)
        if self.truncated:
            logger.warning("%s is truncated; its last record was dropped", self.name)
        if self.damaged:
            logger.warning("%s: %d damaged records, at bytes %s", self.name, self.damaged, list(self.damaged_offsets))
        if self.crossed:
            logger.warning("%s: in %d places a record lies within another", self.name, self.crossed)
        if self.one_member:
            logger.warning("%s is gzip as a whole, not a member a record: it cannot be read in parts", self.name)


@dataclass(frozen=True)
class BundleResult:
    """What became of one task."""

    shards: tuple[DocumentShard, ...]
    files: tuple[FileSummary, ...]
    dropped: dict[str, int]
    flags: dict[str, int]
    charsets: dict[str, int]
    extractors: dict[str, int]


@dataclass(frozen=True)
class Summary:
    """What became of a crawl."""

    flow: Flow
    file_flow: Flow
    files: tuple[FileSummary, ...]
    flags: dict[str, int]
    charsets: dict[str, int]
    extractors: dict[str, int]

    @property
    def remark(self) -> str:
        """What people must know of files that were cut or damaged; empty when all are whole."""
        bad = [file for file in self.files if file.truncated or file.damaged]
        if not bad:
            return ""
        shown = ", ".join(f"{file.name} ({file.state})" for file in bad[:_FILES_SHOWN])
        more = ", …" if len(bad) > _FILES_SHOWN else ""
        return f"{len(bad)} of {len(self.files)} WARC files cut or damaged: {shown}{more}"

    def to_json(self) -> dict[str, Any]:
        """The summary as it is kept beside the documents."""
        return asdict(self)


def summarise(results: Sequence[BundleResult], config: ExtractConfig) -> Summary:
    """The counters of all tasks together.

    Raises:
        StepError: a file that was read in parts is too damaged.
    """
    files: list[FileSummary] = []
    joined = False
    for file in (file for result in results for file in result.files):
        if files and files[-1].name == file.name:
            files[-1] = files[-1].joined(file)
            joined = True
        else:
            files.append(file)
    if joined:
        for file in files:
            file.check(config)
    without = sum(not file.records for file in files)
    return Summary(
        flow=Flow(
            unit="records",
            read=sum(file.records for file in files),
            kept=sum(shard.rows for result in results for shard in result.shards),
            dropped=_sum(result.dropped for result in results),
        ),
        file_flow=Flow(
            unit="WARC files",
            read=len(files),
            kept=len(files) - without,
            dropped={"without_records": without} if without else {},
        ),
        files=tuple(files),
        flags=_sum(result.flags for result in results),
        charsets=_sum(result.charsets for result in results),
        extractors=_sum(result.extractors for result in results),
    )


def _sum(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(sorted(total.items()))
