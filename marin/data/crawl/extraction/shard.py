"""One task of an extraction: WARC records to document shards, with every record in exactly one counter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from marin.data.crawl.artifacts import Crawl, WarcFile
from marin.data.crawl.config import MIB, ExtractConfig
from marin.data.crawl.external import check_external
from marin.data.crawl.extraction.bundles import Bundle, open_warc
from marin.data.crawl.extraction.extractors import ARCHIVED, extractor_version
from marin.data.crawl.extraction.isolation import Extraction, IsolatedExtractor
from marin.data.crawl.extraction.summary import BundleResult, FileSummary
from marin.data.crawl.warc.pages import WebPage, page_of
from marin.data.crawl.warc.record import RawRecord
from marin.data.crawl.warc.records import FileReport, Span, read_records
from marin.data.documents.io import DocumentWriter
from marin.data.documents.normalise import normalise
from marin.data.documents.schema import Document, make_document
from marin.execution import StepError, current_run

_BATCH_PAGES = 64
_BATCH_CHARACTERS = 4 * MIB
_OFFSETS_KEPT = 20


def extract_bundle(bundle: Bundle) -> BundleResult:
    """Extract the pages of a bundle into document shards.

    Raises:
        StepError: a file is too damaged, cannot be read, or is not the file that the crawl found.
    """
    run = current_run()
    source, config = bundle.crawl.source, bundle.config
    totals = _Totals()
    files: list[FileSummary] = []
    with (
        DocumentWriter(run.write, bundle.stem, source=source) as writer,
        IsolatedExtractor(config.extractor, page_seconds=config.page_seconds, max_depth=config.max_depth) as isolated,
    ):
        for warc in bundle.crawl.warcs:
            report = FileReport()
            kept = 0
            for document in extract_file(bundle.crawl, warc, bundle.span, config, isolated, report, totals):
                writer.write(document)
                kept += 1
                totals.documents += 1
                run.progress(totals.documents, unit="docs")
            file = _file_summary(warc, report, kept)
            if not bundle.is_part:
                file.check(config)
            files.append(file)
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
    span: Span,
    config: ExtractConfig,
    isolated: IsolatedExtractor,
    report: FileReport,
    totals: _Totals,
) -> Iterator[Document]:
    """The documents of a WARC file; everything that is not a document is counted in ``totals.dropped``.

    Raises:
        StepError: the file cannot be read, or is not the file that the crawl found.
    """
    records = read_records(lambda: open_warc(crawl, warc), report, span)
    try:
        for batch in _batches(_pages(records, warc, config, report, totals)):
            for page, extraction in zip(batch, _extracted(batch, isolated), strict=True):
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


def _extracted(batch: list[_PlacedPage], isolated: IsolatedExtractor) -> Iterator[Extraction]:
    """The text of each page; what is text already is taken as it is."""
    extractions = isolated.extract([placed.page.content for placed in batch if not placed.page.is_text])
    for placed in batch:
        yield Extraction(placed.page.content, ARCHIVED) if placed.page.is_text else next(extractions)


@dataclass(frozen=True, slots=True)
class _PlacedPage:
    page: WebPage
    warc: str
    offset: int
    in_large_member: bool
    """Whether it lies in a packed member with other records, so that the offset is not where reading it begins."""


class _Totals:
    """Counters of a bundle."""

    def __init__(self) -> None:
        self.documents = 0
        self.dropped: Counter[str] = Counter()
        self.flags: Counter[str] = Counter()
        self.charsets: Counter[str] = Counter()
        self.extractors: Counter[str] = Counter()


def _pages(
    records: Iterable[RawRecord], warc: WarcFile, config: ExtractConfig, report: FileReport, totals: _Totals
) -> Iterator[_PlacedPage]:
    for record in records:
        page = page_of(record)
        if isinstance(page, str):
            totals.dropped[page] += 1
        elif len(page.content) > config.max_page_bytes:
            totals.dropped["page_too_large"] += 1
        else:
            totals.flags.update(page.flags)
            totals.charsets[f"{page.charset} ({page.charset_from})"] += 1
            yield _PlacedPage(page, warc.name, record.offset, report.one_member)


def _batches(pages: Iterable[_PlacedPage]) -> Iterator[list[_PlacedPage]]:
    batch: list[_PlacedPage] = []
    characters = 0
    for page in pages:
        batch.append(page)
        characters += len(page.page.content)
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
            **({} if placed.in_large_member else {"offset": placed.offset}),
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


def _file_summary(warc: WarcFile, report: FileReport, documents: int) -> FileSummary:
    return FileSummary(
        name=warc.url or warc.name,
        records=report.records,
        documents=documents,
        truncated=report.truncated,
        damaged=len(report.damaged),
        damaged_offsets=tuple(report.damaged[:_OFFSETS_KEPT]),
        one_member=report.one_member,
        crossed=int(report.crossed),
    )
