"""One bundle of WARC files to document shards, with every record in exactly one counter."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, BinaryIO

from marin.data.crawl.artifacts import Crawl, WarcFile
from marin.data.crawl.config import MIB, ExtractConfig
from marin.data.crawl.external import check_external, open_external
from marin.data.crawl.extraction.extractors import extractor_version
from marin.data.crawl.extraction.isolation import IsolatedExtractor
from marin.data.crawl.warc.pages import WebPage, page_of
from marin.data.crawl.warc.records import FileReport, read_records
from marin.data.documents.artifacts import DocumentShard
from marin.data.documents.io import DocumentWriter
from marin.data.documents.normalise import normalise
from marin.data.documents.schema import Document, make_document
from marin.execution import Flow, StepError, current_run

logger = logging.getLogger(__name__)

_BATCH_PAGES = 64
_BATCH_CHARACTERS = 4 * MIB
_MAX_BUNDLE_BYTES = 256 * MIB
_BUNDLES = 16
_FEW_DAMAGED = 10
_OFFSETS_KEPT = 20


@dataclass(frozen=True)
class Bundle:
    """Neighbouring WARC files of a crawl that one task reads."""

    crawl: Crawl
    first: int
    count: int
    config: ExtractConfig

    @property
    def warcs(self) -> tuple[WarcFile, ...]:
        """The files."""
        return self.crawl.warcs[self.first : self.first + self.count]


@dataclass(frozen=True)
class FileSummary:
    """What became of one WARC file."""

    name: str
    records: int
    documents: int
    truncated: bool
    damaged: int
    damaged_offsets: tuple[int, ...]


@dataclass(frozen=True)
class BundleResult:
    """What became of one bundle."""

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
    files: tuple[FileSummary, ...]
    flags: dict[str, int]
    charsets: dict[str, int]
    extractors: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        """The summary as it is kept beside the documents."""
        return asdict(self)


def plan_bundles(crawl: Crawl, config: ExtractConfig) -> list[Bundle]:
    """The crawl's files in bundles of about equal size: enough of them to spread, large enough to be worth a task."""
    sizes = [warc.size or _MAX_BUNDLE_BYTES for warc in crawl.warcs]
    target = min(_MAX_BUNDLE_BYTES, max(1, sum(sizes) // _BUNDLES))
    bundles: list[Bundle] = []
    first = filled = 0
    for index, size in enumerate(sizes):
        filled += size
        if filled >= target or index == len(sizes) - 1:
            bundles.append(Bundle(crawl, first, index + 1 - first, config))
            first, filled = index + 1, 0
    return bundles


def extract_bundle(bundle: Bundle) -> BundleResult:
    """Extract the pages of a bundle into document shards."""
    run = current_run()
    source, config = bundle.crawl.source, bundle.config
    totals = _Totals()
    files: list[FileSummary] = []
    stem = f"{source}-{bundle.first:05d}"
    with (
        DocumentWriter(run.write, stem, source=source) as writer,
        IsolatedExtractor(config.extractor, page_seconds=config.page_seconds, max_depth=config.max_depth) as isolated,
    ):
        for warc in bundle.warcs:
            report = FileReport()
            kept = 0
            for document in extract_file(bundle.crawl, warc, config, isolated, report, totals):
                writer.write(document)
                kept += 1
                totals.documents += 1
                run.progress(totals.documents, unit="docs")
            files.append(_file_summary(warc, report, kept, config))
    return BundleResult(
        shards=writer.shards,
        files=tuple(files),
        dropped=dict(totals.dropped),
        flags=dict(totals.flags),
        charsets=dict(totals.charsets),
        extractors=dict(totals.extractors),
    )


def extract_file(
    crawl: Crawl,
    warc: WarcFile,
    config: ExtractConfig,
    isolated: IsolatedExtractor,
    report: FileReport,
    totals: _Totals,
) -> Iterator[Document]:
    """The documents of one WARC file; everything that is not a document is counted in ``totals.dropped``.

    Raises:
        StepError: the file cannot be read, or is not the file that the crawl found.
    """

    def open_stream() -> BinaryIO:
        return crawl.open(warc.name) if warc.url is None else open_external(warc)

    try:
        for batch in _batches(_pages(read_records(open_stream, report), warc, config, totals)):
            for page, extraction in zip(batch, isolated.extract([page.page.html for page in batch]), strict=True):
                if extraction.failure is not None:
                    totals.dropped[extraction.failure] += 1
                    continue
                document = _document(page, extraction.text, extraction.extractor, crawl.source, config, totals)
                if document is not None:
                    yield document
        if warc.url is not None:
            check_external(warc)
    except OSError as error:
        raise StepError(f"WARC {warc.url or warc.name} cannot be read: {error}") from error


@dataclass(frozen=True, slots=True)
class _PlacedPage:
    page: WebPage
    warc: str
    offset: int


class _Totals:
    """Counters of a bundle."""

    def __init__(self) -> None:
        self.documents = 0
        self.dropped: Counter[str] = Counter()
        self.flags: Counter[str] = Counter()
        self.charsets: Counter[str] = Counter()
        self.extractors: Counter[str] = Counter()


def _pages(records: Iterable[Any], warc: WarcFile, config: ExtractConfig, totals: _Totals) -> Iterator[_PlacedPage]:
    for record in records:
        page = page_of(record)
        if isinstance(page, str):
            totals.dropped[page] += 1
        elif len(page.html) > config.max_page_bytes:
            totals.dropped["page_too_large"] += 1
        else:
            totals.flags.update(page.flags)
            totals.charsets[f"{page.charset} ({page.charset_from})"] += 1
            yield _PlacedPage(page, warc.name, record.offset)


def _batches(pages: Iterable[_PlacedPage]) -> Iterator[list[_PlacedPage]]:
    batch: list[_PlacedPage] = []
    characters = 0
    for page in pages:
        batch.append(page)
        characters += len(page.page.html)
        if len(batch) >= _BATCH_PAGES or characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _document(
    placed: _PlacedPage, text: str, extractor: str, source: str, config: ExtractConfig, totals: _Totals
) -> Document | None:
    stored = normalise(text)
    reason = _reason_against(stored.text, stored.stripped, config)
    if reason is not None:
        totals.dropped[reason] += 1
        return None
    totals.extractors[extractor] += 1
    page = placed.page
    return make_document(
        stored.text,
        source=source,
        url=page.url,
        position=f"{placed.warc}:{placed.offset}",
        metadata={
            "charset": page.charset,
            "charset_from": page.charset_from,
            "date": page.date,
            "extractor": extractor,
            "extractor_version": _version(extractor),
            "warc": placed.warc,
            **({"flags": list(page.flags)} if page.flags else {}),
        },
    )


_VERSIONS: dict[str, str] = {}


def _version(extractor: str) -> str:
    if extractor not in _VERSIONS:
        _VERSIONS[extractor] = extractor_version(extractor)
    return _VERSIONS[extractor]


def _reason_against(text: str, stripped: int, config: ExtractConfig) -> str | None:
    if not text.strip():
        return "empty_text"
    if stripped > config.max_controls * (len(text) + stripped):
        return "binary"
    if text.count("\ufffd") > config.max_replaced * len(text):
        return "undecodable"
    return None


def _file_summary(warc: WarcFile, report: FileReport, documents: int, config: ExtractConfig) -> FileSummary:
    name = warc.url or warc.name
    damaged = len(report.damaged)
    if config.strict and (report.truncated or damaged):
        state = "truncated" if report.truncated else f"damaged at bytes {report.damaged[:_OFFSETS_KEPT]}"
        raise StepError(f"WARC {name} is {state}; extract.strict allows no such file")
    if damaged > max(_FEW_DAMAGED, config.max_damaged * report.records):
        raise StepError(
            f"WARC {name}: {damaged} of {report.records} records are damaged, more than extract.max_damaged = "
            f"{config.max_damaged} allows; get the file again, or raise the limit"
        )
    if report.truncated:
        logger.warning("%s is truncated; its last record was dropped", name)
    if damaged:
        logger.warning("%s has %d damaged records, at bytes %s", name, damaged, report.damaged[:_OFFSETS_KEPT])
    return FileSummary(
        name=name,
        records=report.records,
        documents=documents,
        truncated=report.truncated,
        damaged=damaged,
        damaged_offsets=tuple(report.damaged[:_OFFSETS_KEPT]),
    )


def summarise(results: Sequence[BundleResult]) -> Summary:
    """The counters of all bundles together."""
    files = tuple(file for result in results for file in result.files)
    return Summary(
        flow=Flow(
            unit="records",
            read=sum(file.records for file in files),
            kept=sum(shard.rows for result in results for shard in result.shards),
            dropped=_sum(result.dropped for result in results),
        ),
        files=files,
        flags=_sum(result.flags for result in results),
        charsets=_sum(result.charsets for result in results),
        extractors=_sum(result.extractors for result in results),
    )


def _sum(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(sorted(total.items()))
