"""What to crawl, and how to extract it."""

from __future__ import annotations

import importlib.metadata
import math
import platform
import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from marin.data.crawl.site.packages import PACKAGES, STDLIB
from marin.execution import External, runtime

MIB = 1024**2

Extractor = Literal["resiliparse", "trafilatura"]
EXTRACTORS: tuple[Extractor, ...] = ("resiliparse", "trafilatura")

_SOURCE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


@dataclass(frozen=True)
class PackageVersion:
    """One package of the embedded site, at the version that is installed where the graph is built."""

    name: str
    version: str


@dataclass(frozen=True)
class EmbeddedSite:
    """The documentation of installed packages, served on loopback and crawled over HTTP.

    Attributes:
        packages: what is documented; each has a host of its own.
        python: minor version of the interpreter, which renders signatures.
        max_pages: pages after which the crawl ends.
        max_bytes: bytes of bodies after which the crawl ends.
        max_page_bytes: a longer body is counted and not archived.
        warc_bytes: compressed bytes after which the next WARC file begins.
        connections: HTTP connections at once; the result does not depend on it.
    """

    packages: tuple[PackageVersion, ...]
    python: str
    max_pages: int = 2000
    max_bytes: int = 256 * MIB
    max_page_bytes: int = 8 * MIB
    warc_bytes: int = 1 * MIB
    connections: int = runtime(4)

    def __post_init__(self) -> None:
        if not self.packages:
            raise ValueError("embedded.packages is empty; name at least one package")
        names = [package.name for package in self.packages]
        if len(set(names)) != len(names):
            raise ValueError(f"embedded.packages names a package twice: {names!r}")
        for field in ("max_pages", "max_bytes", "max_page_bytes", "warc_bytes", "connections"):
            _require_positive(f"embedded.{field}", getattr(self, field))


@dataclass(frozen=True)
class CrawlConfig:
    """One source of pages: either the embedded site or WARC files that exist already.

    Attributes:
        source: name of the source, part of every document's id.
        embedded: the site to crawl.
        warcs: WARC files to read where they lie: local paths or URLs (s3, gs, https), also glob patterns. The file's
            ``version`` is its identity and is the author's word, which is checked; see :func:`external_crawl`.
    """

    source: str
    embedded: EmbeddedSite | None = None
    warcs: tuple[External, ...] = ()

    def __post_init__(self) -> None:
        if not _SOURCE_NAME.fullmatch(self.source):
            raise ValueError(
                f"crawl.source is {self.source!r}; use a name of lower-case letters, digits, '-' and '_' such as 'web'"
            )
        if (self.embedded is None) == (not self.warcs):
            found = "both" if self.warcs else "neither"
            raise ValueError(f"crawl {self.source!r} has {found} of embedded and warcs; give exactly one")
        for warc in self.warcs:
            if not warc.path:
                raise ValueError(f"crawl {self.source!r} has a WARC with an empty path; name a file or URL")


@dataclass(frozen=True)
class ExtractConfig:
    """How pages become text.

    Attributes:
        extractor: ``"resiliparse"`` (our scorer on its tree) or ``"trafilatura"`` (the reference, ten times slower).
        page_seconds: time limit for one page, which holds in native code too.
        max_page_bytes: a page with a longer decoded body is counted as ``page_too_large``.
        max_depth: a page whose elements are nested deeper only has its tags stripped.
        max_replaced: share of U+FFFD above which a page is counted as ``undecodable``.
        max_controls: share of control characters above which a page is counted as ``binary``.
        max_damaged: share of a file's records that may be damaged before the step fails (files with few damaged
            records never fail for it).
        strict: fail the step when a WARC is truncated or damaged at all.
    """

    extractor: Extractor = "resiliparse"
    page_seconds: float = runtime(10.0)
    max_page_bytes: int = 16 * MIB
    max_depth: int = 512
    max_replaced: float = 0.01
    max_controls: float = 0.01
    max_damaged: float = 0.1
    strict: bool = False

    def __post_init__(self) -> None:
        if self.extractor not in EXTRACTORS:
            raise ValueError(f"extract.extractor is {self.extractor!r}; choose one of {', '.join(EXTRACTORS)}")
        for field in ("page_seconds", "max_page_bytes", "max_depth"):
            _require_positive(f"extract.{field}", getattr(self, field))
        for field in ("max_replaced", "max_controls", "max_damaged"):
            value = getattr(self, field)
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"extract.{field} is {value!r}; it is a share between 0 and 1")


def embedded_crawl(
    source: str,
    packages: Iterable[str],
    *,
    max_pages: int = 2000,
    max_bytes: int = 256 * MIB,
    warc_bytes: int = 1 * MIB,
) -> CrawlConfig:
    """A crawl of the documentation of installed packages, at the versions that are installed here.

    Raises:
        ValueError: a package is not installed.
    """
    site = EmbeddedSite(
        packages=tuple(PackageVersion(name, installed_version(name)) for name in packages),
        python=".".join(platform.python_version_tuple()[:2]),
        max_pages=max_pages,
        max_bytes=max_bytes,
        warc_bytes=warc_bytes,
    )
    return CrawlConfig(source=source, embedded=site)


def embedded_crawls(*, max_pages: int = 2000, stdlib_pages: int | None = None) -> tuple[CrawlConfig, ...]:
    """The default crawl as two sources: the standard library, and the dependencies of the project.

    Args:
        max_pages: pages in both together.
        stdlib_pages: pages of the standard library, which has about 330; 15 in 100 of all when None.
    """
    share = max(1, max_pages * 15 // 100) if stdlib_pages is None else stdlib_pages
    return (
        embedded_crawl("stdlib", (STDLIB,), max_pages=share),
        embedded_crawl("packages", PACKAGES, max_pages=max(1, max_pages - share)),
    )


def external_crawl(source: str, paths: Iterable[str], *, version: str) -> CrawlConfig:
    """A crawl that exists already, as WARC files.

    Args:
        source: name of the source.
        paths: local paths, URLs or glob patterns.
        version: what identifies the files' contents, such as ``"CC-MAIN-2026-30"``. Together with each file's name it
            is the identity, which is independent of where the files lie.
    """
    named = ((path, posixpath.basename(path.rstrip("/"))) for path in paths)
    return CrawlConfig(source=source, warcs=tuple(External(path, f"{version}/{name}") for path, name in named))


def installed_version(package: str) -> str:
    """The installed version of a package, or of the interpreter for ``"python"``.

    Raises:
        ValueError: the package is not installed.
    """
    if package == STDLIB:
        return platform.python_version()
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise ValueError(
            f"embedded.packages names {package!r}, which is not installed; install it or leave it out"
        ) from None


def _require_positive(name: str, value: float) -> None:
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{name} is {value!r}; it must be a positive number")
