"""WARC files that exist already: found once, read where they lie."""

from __future__ import annotations

import gzip
import posixpath
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

import fsspec
from fsspec.core import url_to_fs

from marin.data.crawl.artifacts import WarcFile
from marin.data.crawl.config import CrawlConfig
from marin.execution import StepError

_GLOB = frozenset("*?[")
_LISTS = (".paths", ".paths.gz")


def find_warcs(config: CrawlConfig) -> tuple[WarcFile, ...]:
    """The WARC files of a crawl, with their sizes.

    A path that is there is that file, whatever characters its name has; otherwise a glob pattern stands for its matches
    in sorted order. A list file (``warc.paths``, ``warc.paths.gz``) stands for
    its lines; a line that is not a URL or absolute path lies beside the list's root: for the lists that Common Crawl
    publishes, below the part of the URL before ``crawl-data/``.

    Raises:
        StepError: a file is missing or cannot be reached, or a pattern has no match.
    """
    found: dict[str, WarcFile] = {}
    for number, external in enumerate(config.warcs):
        field = f"crawl {config.source!r}, warcs[{number}]"
        for path in _expand(external.path, field):
            found.setdefault(path, WarcFile(name=posixpath.basename(path), url=path, size=_size(path, field)))
    return tuple(found.values())


def open_external(warc: WarcFile) -> BinaryIO:
    """A stream over an external WARC, after a check that it is still the file that the crawl found.

    Raises:
        StepError: the file has another size by now, or cannot be reached.
    """
    assert warc.url is not None
    size = _size(warc.url, "crawl")
    if warc.size is not None and size != warc.size:
        raise StepError(
            f"WARC {warc.url} has {size} bytes, {warc.size} when the crawl step ran; give the file a new version"
        )
    filesystem, path = url_to_fs(warc.url)
    return cast(BinaryIO, filesystem.open(path, "rb"))


def _expand(path: str, field: str) -> Iterator[str]:
    if path.endswith(_LISTS):
        yield from _listed(path, field)
    elif _GLOB.intersection(path) and not path.startswith(("http://", "https://")):
        with _explained(path, field):
            filesystem, pattern = url_to_fs(path)
            if filesystem.exists(pattern):  # brackets are ordinary characters in the name of a file that is there
                yield path
                return
            matches = sorted(filesystem.unstrip_protocol(match) for match in filesystem.glob(pattern))
        if not matches:
            raise StepError(f"{field}: no WARC file matches {path!r}; check the pattern")
        yield from matches
    else:
        yield path


def _listed(path: str, field: str) -> Iterator[str]:
    with _explained(path, field), fsspec.open(path, "rb") as stream:
        data: bytes = stream.read()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    root = path.partition("crawl-data/")[0] if "crawl-data/" in path else posixpath.dirname(path) + "/"
    for line in data.decode().split():
        yield line if "://" in line or line.startswith("/") else root + line


def _size(path: str, field: str) -> int | None:
    with _explained(path, field):
        filesystem, stripped = url_to_fs(path)
        info: dict[str, Any] = filesystem.info(stripped)
    if info.get("type") == "directory":
        raise StepError(f"{field}: {path!r} is a folder; name its files, such as {path.rstrip('/')}/*.warc.gz")
    size = info.get("size")
    return None if size is None else int(size)


class _explained:
    """Turns whatever a file system raises into one message that names the path and the field."""

    def __init__(self, path: str, field: str) -> None:
        self._path = path
        self._field = field

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, FileNotFoundError):
            raise StepError(f"{self._field}: there is no WARC file {self._path!r}; check the path") from error
        if isinstance(error, StepError) or not isinstance(error, Exception):
            return
        raise StepError(f"{self._field}: WARC file {self._path!r} cannot be reached: {error}") from error
