"""The takedown list: ids and URLs of documents that must not be in what is made, each with its reason."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from marin.data.consolidation.config import Policy, TakedownConfig, TakedownEntry
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
    for field, external in _named_files(config):
        entries.extend(_entries(field, external, read_input(field, external.path)))
    return TakedownList(entries)


def with_lists_of_now(policy: Policy) -> Policy:
    """The policy with a digest of what each takedown list holds now as part of the list's version.

    A step whose recipe is as before reads nothing, so an entry that is added to a list under the version that it had
    would be passed over without a word. With this it is another recipe, and the documents are made anew.

    Raises:
        StepError: a list cannot be read, or one of its lines is no entry.
        StoreUnavailable: its server is in trouble.
    """
    if not policy.takedown.files:
        return policy
    files = []
    for field, external in _named_files(policy.takedown):
        data = read_input(field, external.path)
        for _ in _entries(field, external, data):
            pass  # a line that is none is told before anything runs
        files.append(replace(external, version=f"{external.version}+sha256:{hashlib.sha256(data).hexdigest()[:32]}"))
    return replace(policy, takedown=replace(policy.takedown, files=tuple(files)))


def _named_files(config: TakedownConfig) -> Iterator[tuple[str, External]]:
    return ((f"takedown.files[{number}]", external) for number, external in enumerate(config.files))


def _entries(field: str, external: External, data: bytes) -> Iterator[TakedownEntry]:
    try:
        text = data.decode("utf-8-sig")
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
