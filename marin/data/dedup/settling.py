"""One task of verification: candidates in bounded parts, then the documents that followed a dropped one.

Imports numpy; import this module inside step bodies only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marin.data.dedup.candidates import Following, Wanted, deal_tasks, split_by_group
from marin.data.dedup.config import DedupConfig
from marin.data.dedup.exchange import load_columns, store_columns
from marin.data.dedup.keys import EXACT, FUZZY, KEPT, URL, Numbers
from marin.data.dedup.reading import Candidates, gram_places
from marin.data.dedup.verification import Members, Verdicts, settle
from marin.execution import Intermediate, current_run

RELEASED = -1
"""The kind of a document that stays, although it was dropped within its source."""


@dataclass(frozen=True)
class VerifyTask:
    """Components to settle. Pickles.

    Attributes:
        number: number of the task.
        parts: files of candidates (see `Candidates`), part by part in order of preference.
        followers: files of those that follow candidates (see `Following`).
        carried: file of documents that stay already, or None.
        group_starts: number of the first document of each group.
        across: compare texts of different artifacts only.
        config: what counts as a copy.
    """

    number: int
    parts: tuple[tuple[Intermediate, ...], ...]
    followers: tuple[Intermediate, ...]
    carried: Intermediate | None
    group_starts: tuple[int, ...]
    across: bool
    config: DedupConfig


@dataclass(frozen=True)
class Verified:
    """What a task has settled.

    Attributes:
        fates: for each group a file of `Fates`, None without any.
        orphans: for each group the file of its documents to settle again (see `Wanted`), None without any.
        orphan_parts: parts of these.
        stay: file of the documents that orphans are compared with, None without orphans.
        uncompared: documents that stay because their component has too many others to compare with.
    """

    fates: tuple[Intermediate | None, ...]
    orphans: tuple[Intermediate | None, ...]
    orphan_parts: int
    stay: Intermediate | None
    uncompared: int


@dataclass(frozen=True)
class Fates:
    """Documents that are dropped, or released, and those that stay in the place of others; an entry each.

    Attributes:
        numbers: their numbers.
        kinds: why they are dropped, as in `keys.REASONS`, or `RELEASED`.
        keepers: number of the document that stays; their own when they stay.
        sources: number of its source.
        shares: share of their n-grams in it; NaN when unknown.
        ids: its id, as bytes.
    """

    numbers: Numbers
    kinds: Numbers
    keepers: Numbers
    sources: Numbers
    shares: NDArray[np.float64]
    ids: NDArray[Any]

    def columns(self) -> tuple[NDArray[Any], ...]:
        """All columns in their order."""
        return tuple(getattr(self, name) for name in self.__dataclass_fields__)

    def rows(self, chosen: NDArray[Any]) -> Fates:
        """Some of the entries."""
        return Fates(*(column[chosen] for column in self.columns()))

    @staticmethod
    def joined(parts: Sequence[Fates]) -> Fates:
        """The entries of several behind one another."""
        return Fates(*(np.concatenate(columns) for columns in zip(*(p.columns() for p in parts), strict=True)))


def verify(task: VerifyTask) -> Verified:
    """Settle the components of a task."""
    following = _load_following(task.followers)
    waited_for = np.unique(following.labels)
    stays = None if task.carried is None else Candidates(*load_columns(task.carried))
    lasting: list[Candidates] = []
    parts: list[Fates] = []
    uncompared = 0
    for number, files in enumerate(task.parts):
        current_run().progress(number, len(task.parts), "parts")
        fates, kept, left = _settle_part(task, files, stays)
        parts.append(fates)
        uncompared += left
        lasting.append(kept.rows(np.flatnonzero(np.isin(kept.labels, waited_for) & (kept.counts > 0))))
        # Only the last component of a part can go on in the next one.
        goes_on = kept.rows(np.flatnonzero(kept.labels == kept.labels.max(initial=-1)))
        stays = goes_on if task.carried is None else _with_later(stays, goes_on)
    settled = Fates.joined(parts)
    inherited, orphan = _inherited(following, settled)
    dropped = Fates.joined([settled.rows(np.flatnonzero(settled.kinds != KEPT)), inherited])
    orphans = following.rows(np.flatnonzero(orphan))
    stay: Intermediate | None = None
    wanted: tuple[Intermediate | None, ...] = (None,) * len(task.group_starts)
    count = 0
    if len(orphans.numbers):
        everyone = Candidates.joined(lasting)
        chosen = everyone.rows(np.flatnonzero(np.isin(everyone.labels, orphans.labels)))
        stay = store_columns("stay.npy", *_once(chosen).columns())
        wanted, count = _orphans(task, orphans)
    told = [dropped, _leading(dropped)]
    if task.carried is not None:
        released = settled.rows(np.flatnonzero(settled.kinds == KEPT))
        told.append(replace(released, kinds=np.full(len(released.numbers), RELEASED)))
    return Verified(
        fates=_store(Fates.joined(told), task.group_starts),
        orphans=wanted,
        orphan_parts=count,
        stay=stay,
        uncompared=uncompared,
    )


def _settle_part(
    task: VerifyTask, files: Sequence[Intermediate], stays: Candidates | None
) -> tuple[Fates, Candidates, int]:
    """Settle one part: the fates of its documents, those of it and before it that stay, and how many uncompared."""
    found = Candidates.joined([Candidates(*load_columns(file)) for file in files])
    found = found.rows(np.lexsort((found.numbers, found.ids, found.orders)))
    earlier = 0
    if stays is not None:
        before = stays.rows(np.flatnonzero(np.isin(stays.labels, found.labels)))
        earlier = len(before.numbers)
        both = Candidates.joined([before, found])
        order = np.lexsort((np.arange(len(both.numbers)), both.labels))
        found, came_before = both.rows(order), order < earlier
    else:
        came_before = np.zeros(len(found.numbers), bool)
    _, components = np.unique(found.labels, return_inverse=True)
    members = Members(
        components,
        _words(found),
        _addresses(found),
        found.origins,
        found.protected | came_before,
        found.counts,
        found.grams,
    )
    verdicts = settle(members, task.config.containment, across=task.across)
    kept = _kept(found, verdicts)
    fates = _fates(found, verdicts).rows(np.flatnonzero(~came_before))
    return fates, kept, verdicts.uncompared


def _words(found: Candidates) -> Numbers:
    """A number that documents of equal words share."""
    numbers: Numbers = np.unique(found.contents, return_inverse=True)[1]
    return numbers


def _addresses(found: Candidates) -> Numbers:
    """A number that documents of an equal address share."""
    _, numbers = np.unique(found.urls, return_inverse=True)
    return np.where(found.urls == b"", -1 - np.arange(len(numbers)), numbers)


def _kept(found: Candidates, verdicts: Verdicts) -> Candidates:
    """The documents that stay, with the n-grams of those that others are compared with."""
    rows = np.flatnonzero(verdicts.kinds == KEPT)
    # The text may have been read of another document of equal words.
    read = np.flatnonzero(found.counts)
    words = _words(found)
    readers = np.full(len(words), -1)
    readers[words[read[::-1]]] = read[::-1]
    compared = verdicts.leads[rows] & (readers[words[rows]] >= 0)
    readers = readers[words[rows]]
    kept = found.rows(rows)
    return replace(
        kept,
        counts=np.where(compared, found.counts[readers], 0),
        grams=found.grams[gram_places(found.counts, readers[compared])],
    )


def _fates(found: Candidates, verdicts: Verdicts) -> Fates:
    return Fates(
        found.numbers,
        verdicts.kinds,
        found.numbers[verdicts.keepers],
        found.sources[verdicts.keepers],
        verdicts.shares,
        found.ids[verdicts.keepers],
    )


def _with_later(stays: Candidates | None, later: Candidates) -> Candidates:
    """Documents that stay already, with what stayed in the last component instead of what was known of it."""
    if stays is None:
        return later
    others = stays.rows(np.flatnonzero(~np.isin(stays.labels, later.labels)))
    return Candidates.joined([others, later])


def _once(candidates: Candidates) -> Candidates:
    """Each document once, in the order of components, then as they were found."""
    _, first = np.unique(candidates.numbers, return_index=True)
    first = np.sort(first)
    return candidates.rows(first[np.argsort(candidates.labels[first], kind="stable")])


def _load_following(files: Sequence[Intermediate]) -> Following:
    columns = [load_columns(file) for file in files]
    if not columns:
        none = np.zeros(0, np.int64)
        return Following(none, none, none, none, none, none, none, np.zeros(0))
    return Following(*(np.concatenate(parts) for parts in zip(*columns, strict=True)))


def _inherited(following: Following, settled: Fates) -> tuple[Fates, NDArray[np.bool_]]:
    """What becomes of documents whose keeper is dropped, where it is known from what became of that one.

    Returns:
        The fates that are known, and which of the documents have to be settled again.
    """
    order = np.argsort(settled.numbers)
    at = order[np.searchsorted(settled.numbers[order], following.keepers)] if len(order) else order
    kinds = settled.kinds[at]
    # Equal words are held by whatever holds those words; an equal address, by a document of that address.
    as_keeper = ((following.kinds == EXACT) & (kinds != URL)) | ((following.kinds == URL) & (kinds == URL))
    as_before = (following.kinds == FUZZY) & (kinds == EXACT)
    known = np.flatnonzero((kinds != KEPT) & (as_keeper | as_before))
    by_address = following.kinds == URL
    inherited = Fates(
        following.numbers,
        np.where(as_before, FUZZY, kinds),
        settled.keepers[at],
        settled.sources[at],
        np.where(as_before, following.shares, np.where(by_address, np.nan, settled.shares[at])),
        settled.ids[at],
    ).rows(known)
    return inherited, (kinds != KEPT) & ~as_keeper & ~as_before


def _orphans(task: VerifyTask, orphans: Following) -> tuple[tuple[Intermediate | None, ...], int]:
    """Leave the documents to settle again, dealt out to parts of this task."""
    ordered = orphans.rows(np.lexsort((orphans.numbers, orphans.orders)))
    count = len(ordered.numbers)
    _, parts = deal_tasks(np.zeros(count, np.int64), ordered.orders, ordered.sizes + 1, task.config)
    wanted = Wanted(
        ordered.numbers,
        np.full(count, task.number),
        parts,
        ordered.labels,
        ordered.orders,
        np.full(count, task.config.fuzzy),
    )
    return split_by_group("orphans", wanted, task.group_starts), int(parts[-1]) + 1


def _leading(dropped: Fates) -> Fates:
    """The documents that stay in the place of others."""
    keepers, first = np.unique(dropped.keepers, return_index=True)
    return Fates(
        keepers,
        np.full(len(keepers), KEPT),
        keepers,
        dropped.sources[first],
        np.full(len(keepers), np.nan),
        dropped.ids[first],
    )


def _store(fates: Fates, group_starts: Sequence[int]) -> tuple[Intermediate | None, ...]:
    groups = np.searchsorted(np.array(group_starts, np.int64), fates.numbers, side="right") - 1
    files: list[Intermediate | None] = [None] * len(group_starts)
    for group in np.unique(groups).tolist():
        chosen = np.flatnonzero(groups == group)
        files[group] = store_columns(f"fates-{group:05d}.npy", *fates.rows(chosen).columns())
    return tuple(files)
