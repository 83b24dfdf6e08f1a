"""The crawl of the embedded site: start its server, crawl it, stop it."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from marin.data.crawl.archive import Archive, OpenFile
from marin.data.crawl.artifacts import WarcFile
from marin.data.crawl.config import EmbeddedSite, installed_version
from marin.data.crawl.crawler import CrawlCounts, crawl
from marin.data.crawl.fetch import Fetcher
from marin.data.crawl.site.pages import host_of
from marin.execution import StepError

logger = logging.getLogger(__name__)

_STOP_SECONDS = 5.0


def crawl_site(
    site: EmbeddedSite,
    source: str,
    open_file: OpenFile,
    on_progress: Callable[[CrawlCounts], None] = lambda counts: None,
) -> tuple[tuple[WarcFile, ...], CrawlCounts]:
    """Crawl the embedded site into WARC files; equal versions give equal (url, body) sets.

    Raises:
        StepError: an installed version is not the one in the config, or the server fails.
    """
    check_versions(site)
    names = [package.name for package in site.packages]
    description = "documentation of " + ", ".join(f"{p.name} {p.version}" for p in site.packages)
    with site_server(names) as address:
        fetcher = Fetcher(address, max_body=site.max_page_bytes)
        try:
            with Archive(open_file, source, file_bytes=site.warc_bytes, description=description) as archive:
                counts = crawl(
                    map(host_of, names),
                    fetcher,
                    max_pages=site.max_pages,
                    max_bytes=site.max_bytes,
                    max_page_bytes=site.max_page_bytes,
                    connections=site.connections,
                    on_fetched=archive.write,
                    on_progress=on_progress,
                )
        except OSError as error:
            raise StepError(f"the embedded site of {source!r} could not be crawled: {error}") from error
        finally:
            fetcher.close()
    logger.info("crawled %d pages, %d bytes; links not followed: %s", counts.pages, counts.body_bytes, counts.skipped)
    return archive.files, counts


def check_versions(site: EmbeddedSite) -> None:
    """Raise `StepError` when this machine has other versions than the config says."""
    for package in site.packages:
        try:
            found = installed_version(package.name)
        except ValueError as error:
            raise StepError(str(error)) from None
        if found != package.version:
            raise StepError(
                f"embedded.packages says {package.name} {package.version}, but {found} is installed here; "
                "install the same versions everywhere, or build the graph again with these"
            )


@contextmanager
def site_server(packages: list[str]) -> Iterator[tuple[str, int]]:
    """The address of a server of the packages' pages, in a process that ends with the block (or with this process).

    Raises:
        StepError: the server does not start.
    """
    root = str(Path(__file__).resolve().parents[3])
    paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    process = subprocess.Popen(
        [sys.executable, "-m", "marin.data.crawl.site.server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(packages) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise StepError(f"the server of the embedded site ended at once with code {process.wait(_STOP_SECONDS)}")
        yield "127.0.0.1", int(line)
    finally:
        process.stdin.close()
        process.stdout.close()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
