"""Sources that are ready to use, each a few lines over the configs."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

from marin.data.crawl.config import CrawlConfig, external_crawl
from marin.data.sources.config import FileFormat, HubDataset, SourceConfig
from marin.execution import External

COMMON_CRAWL = "https://data.commoncrawl.org"
WIKIMEDIA = "https://dumps.wikimedia.org"


def common_crawl(dump: str, *, source: str = "web", root: str = COMMON_CRAWL) -> CrawlConfig:
    """All WARC files of a dump of Common Crawl, such as ``"CC-MAIN-2026-30"``, by the list that it publishes.

    With ``root="s3://commoncrawl"`` they are read from S3.
    """
    return external_crawl(source, (f"{root}/crawl-data/{dump}/warc.paths.gz",), version=dump)


def hugging_face(
    source: str, name: str, *, revision: str, subset: str | None = None, split: str = "train", text_field: str = "text"
) -> SourceConfig:
    """A dataset of the Hugging Face hub, at a commit or tag."""
    return SourceConfig(source, dataset=HubDataset(name, revision, subset, split), text_field=text_field)


def wikipedia(
    dump: str,
    *,
    language: str = "en",
    source: str = "wikipedia",
    parts: Iterable[str] = (),
    root: str = WIKIMEDIA,
) -> SourceConfig:
    """The articles of Wikipedia in a language, from a dump of a date such as ``"20261101"``.

    It is the file with all articles in many streams, which is read in parts. ``parts`` names other files of the dump,
    such as ``pages-articles1.xml-p1p41242.bz2``, which are read side by side. ``root`` is a mirror.
    """
    wiki = f"{language.replace('-', '_')}wiki"
    names = tuple(parts) or ("pages-articles-multistream.xml.bz2",)
    files = tuple(f"{root}/{wiki}/{dump}/{wiki}-{dump}-{name}" for name in names)
    return files_of(source, files, format="wikipedia", version=dump, licence="CC-BY-SA-4.0")


def text_folder(source: str, path: str, *, version: str, licence: str = "") -> SourceConfig:
    """All files of a folder, or all matches of a pattern, each one document."""
    return files_of(source, (path,), format="text", version=version, licence=licence)


def files_of(
    source: str, paths: Iterable[str], *, format: FileFormat, version: str, text_field: str = "text", licence: str = ""
) -> SourceConfig:
    """Files of one format; ``version`` and the name of each are its identity, wherever it lies."""
    named = ((path, posixpath.basename(path.rstrip("/"))) for path in paths)
    files = tuple(External(path, f"{version}/{name}") for path, name in named)
    return SourceConfig(source, files, format, text_field=text_field, licence=licence)
