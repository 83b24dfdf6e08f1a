"""The takedown list: ids and URLs of documents that must not be in what is made, each with its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from marin.data.consolidation.config import TakedownConfig, TakedownEntry
from marin.data.documents.addresses import canonical_url
from marin.data.inputs.files import read_input
from marin.execution import External, StepError


class TakedownList:
    """Entries, looked up by document id and URL; it counts which ones were met.

    A URL matches every way of writing it that `canonical_url` takes for the same; one that ends in ``*`` matches all
    URLs that begin like it.
    """

    def __init__(self, entries: Iterable[TakedownEntry]) -> None:
        self.entries = tuple(entries)
        self.met: Counter[str] = Counter()
        self._ids: dict[str, TakedownEntry] = {}
        self._urls: dict[str, TakedownEntry] = {}
        self._beginnings: list[tuple[str, TakedownEntry]] = []
        for entry in self.entries:
            if entry.is_pattern:
                self._beginnings.append((canonical_beginning(entry.what), entry))
            elif entry.is_url:
                self._urls.setdefault(canonical_url(entry.what), entry)
            else:
                self._ids.setdefault(entry.what, entry)

    @property
    def needs_urls(self) -> bool:
        """Whether URLs have to be looked at."""
        return bool(self._urls or self._beginnings)

    def find(self, document_id: str, url: str | None) -> TakedownEntry | None:
        """The entry that a document falls under, counted as met."""
        entry = self._ids.get(document_id)
        if entry is None and url is not None and self.needs_urls:
            place = canonical_url(url)
            entry = self._urls.get(place) or next(
                (one for beginning, one in self._beginnings if f"{place}/".startswith(beginning)), None
            )
        if entry is not None:
            self.met[entry.what] += 1
        return entry


def canonical_beginning(pattern: str) -> str:
    """What canonical URLs begin with that match a pattern such as ``https://example.org/private/*``."""
    stem = pattern.removesuffix("*")
    place = canonical_url(stem)
    # A host is meant whole: example.org* is not example.organic.
    return f"{place}/" if stem.endswith("/") or "/" not in place else place


def load_takedowns(config: TakedownConfig) -> TakedownList:
    """The entries of a config and of its files.

    Raises:
        StepError: a file cannot be read, or one of its lines is no entry.
    """
    entries = list(config.entries)
    for number, external in enumerate(config.files):
        entries.extend(_entries(f"takedown.files[{number}]", external))
    return TakedownList(entries)


def _entries(field: str, external: External) -> Iterator[TakedownEntry]:
    try:
        text = read_input(field, external.path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise StepError(f"{field}: {external.path!r} cannot be read: {error}") from error
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        what, reason = (*line.split(None, 1), "")[:2]
        try:
            yield TakedownEntry(what, reason.strip())
        except ValueError as error:
            raise StepError(f"{field}: {external.path!r}, line {number}: {error}") from error
