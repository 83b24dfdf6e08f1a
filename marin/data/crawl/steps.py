"""The steps of this room: fetch a crawl, extract its pages."""

from __future__ import annotations

from marin.data.crawl.artifacts import Crawl
from marin.data.crawl.config import CrawlConfig, ExtractConfig
from marin.data.documents.artifacts import Documents
from marin.execution import StepError, current_run, step


@step("crawl/warc", version="1")
def fetch_crawl(config: CrawlConfig) -> Crawl:
    """Crawl the embedded site into WARC files, or take stock of WARC files that exist already.

    Raises:
        StepError: a WARC is missing, or an installed package has another version than the config says.
    """
    run = current_run()
    if config.embedded is None:
        from marin.data.crawl.external import find_warcs

        warcs = find_warcs(config)
        return Crawl(source=config.source, warcs=warcs, pages=None, bytes=sum(warc.size or 0 for warc in warcs))

    from marin.data.crawl.embedded import crawl_site

    site = config.embedded
    files, counts = crawl_site(
        site, config.source, run.write, lambda counts: run.progress(counts.pages, site.max_pages, unit="pages")
    )
    run.write_json(
        "crawl.json", {"pages": counts.pages, "body_bytes": counts.body_bytes, "links_not_followed": counts.skipped}
    )
    return Crawl(source=config.source, warcs=files, pages=counts.pages, bytes=sum(file.size or 0 for file in files))


@step("documents/pages", version="6", fans_out=True)
def extract_pages(crawl: Crawl, config: ExtractConfig = ExtractConfig()) -> Documents:
    """The HTML pages of a crawl as documents of text; every other record is counted under its reason.

    Raises:
        StepError: a file cannot be read, is too damaged, or the crawl has records but no document comes out of it.
    """
    from marin.data.crawl.extraction.bundles import plan_bundles
    from marin.data.crawl.extraction.shard import extract_bundle
    from marin.data.crawl.extraction.summary import summarise
    from marin.data.documents.io import documents_of

    run = current_run()
    results = run.map(extract_bundle, plan_bundles(crawl, config), unit="WARC bundles")
    summary = summarise(results, config)
    run.write_json("extraction.json", summary.to_json())
    run.account(summary.flow)
    run.account(summary.file_flow)
    if summary.flow.read and not summary.flow.kept:
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(summary.flow.dropped.items()))
        raise StepError(f"no document came out of the {summary.flow.read} records of crawl {crawl.source!r}: {reasons}")
    if summary.remark:
        run.remark(summary.remark)
    return documents_of(crawl.source, (shard for result in results for shard in result.shards))
