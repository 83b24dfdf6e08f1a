"""What a crawl leaves behind."""

from __future__ import annotations

from dataclasses import dataclass

from marin.execution import Artifact
from marin.execution.running.external import Sighting


@dataclass(frozen=True)
class WarcFile:
    """One WARC file.

    Attributes:
        name: file name within the artifact; for an external file, the last part of its URL.
        url: where an external WARC lies, read in place; None for a file of the artifact.
        size: size in bytes when the crawl was made, None where the server does not tell.
        seen: fingerprints of an external file when the crawl was made.
    """

    name: str
    url: str | None
    size: int | None
    seen: Sighting | None = None


@dataclass(frozen=True, kw_only=True)
class Crawl(Artifact):
    """Raw pages in WARC files.

    Attributes:
        source: name of the source.
        warcs: the files, in a fixed order.
        pages: pages that were fetched, None for external files, which nobody has read yet.
        bytes: compressed bytes of all files whose size is known.
    """

    source: str
    warcs: tuple[WarcFile, ...]
    pages: int | None
    bytes: int
