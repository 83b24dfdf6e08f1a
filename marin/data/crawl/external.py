"""WARC files that exist already: found once, read where they lie."""

from __future__ import annotations

import posixpath
from typing import BinaryIO, cast

from marin.data.crawl.artifacts import WarcFile
from marin.data.crawl.config import CrawlConfig
from marin.data.inputs.files import look_at, open_input, read_input
from marin.data.inputs.patient import patiently
from marin.execution import External, StepError, current_run
from marin.execution.running.external import FirstUse, Sight, Sighting, each, see, stated_name, without_password

_LISTS = (".paths", ".paths.gz")


def find_warcs(config: CrawlConfig) -> tuple[WarcFile, ...]:
    """The WARC files of a crawl, with their sizes and fingerprints.

    A path that is there is that file, whatever characters its name has; otherwise a glob pattern stands for its matches
    in sorted order. A list file (``warc.paths``, ``warc.paths.gz``) stands for
    its lines; a line that is not a URL or absolute path lies beside the list's root: for the lists that Common Crawl
    publishes, below the part of the URL before ``crawl-data/``. The files of a list are compared with what the list's
    version stood for earlier, as those of a path and of a pattern are by the step itself.

    Raises:
        StepError: a file is missing, cannot be reached or is not what its version stood for, or a pattern has no match.
    """
    spec = current_run().spec
    first_use = FirstUse(spec.store, {"step": spec.display, "run": spec.run})
    found: dict[str, WarcFile] = {}

    def look(number: str) -> Sight:
        external = config.warcs[int(number)]
        field = f"crawl {config.source!r}, warcs[{number}]"
        if external.path.endswith(_LISTS):
            return _listed(field, external)
        return patiently(lambda: see(field, external), lambda: f"{field}: {without_password(external.path)!r}")

    for sight in each([str(number) for number in range(len(config.warcs))], look):
        if sight.external.path.endswith(_LISTS):
            first_use.remember(sight, name=f"files of {stated_name(sight.external)}")
        elif sight.is_folder:
            raise StepError(
                f"{sight.field}: {sight.external.path!r} is a folder; name its files, such as "
                f"{sight.external.path.rstrip('/')}/*.warc.gz"
            )
        for url, seen in zip(sight.urls, sight.files, strict=True):
            found.setdefault(url, WarcFile(name=posixpath.basename(url), url=url, size=seen.size, seen=seen))
    return tuple(found.values())


def open_external(warc: WarcFile) -> BinaryIO:
    """A stream over an external WARC, after a check that it is still the file that the crawl found.

    It is opened again where a connection breaks; see :class:`marin.data.inputs.patient.PatientStream`.

    Raises:
        StepError: the file has changed, or cannot be reached.
        StoreUnavailable: its server is in trouble.
    """
    check_external(warc)
    assert warc.url is not None
    return cast(BinaryIO, open_input("crawl", warc.url, size=warc.size))


def check_external(warc: WarcFile) -> None:
    """Raise `StepError` unless an external WARC is still the file that the crawl found."""
    assert warc.url is not None
    then = warc.seen or Sighting(warc.name, warc.size)
    now = look_at("crawl", warc.url)
    if now.differs(then, same_place=True):
        raise StepError(
            f"WARC {warc.url} had {then} when the crawl step ran, and has {now}; give the file a new version, "
            "or put back what was there"
        )


def _listed(field: str, external: External) -> Sight:
    """The files that a list names, in its order, each under its line."""
    lines = read_input(field, external.path).decode("utf-8", "replace").split()
    root = external.path.partition("crawl-data/")[0] if "crawl-data/" in external.path else ""
    root = root or posixpath.dirname(external.path) + "/"
    urls = [line if "://" in line or line.startswith("/") else root + line for line in lines]
    seen = each(urls, lambda url: look_at(field, url))
    files = [Sighting(line, one.size, one.content, one.place) for line, one in zip(lines, seen, strict=True)]
    return Sight(field, external, external.path, tuple(urls), tuple(files), ("",) * len(files))
