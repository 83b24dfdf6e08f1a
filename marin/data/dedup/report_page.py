"""The report of duplicate removal as JSON and as a page: plain functions of one summary."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from marin.data.documents.pages import template

EXCERPT = 600
"""Characters of a document that the page shows."""

DIFF_WORDS = 1500
"""Words of the beginning of each text that are compared for the page."""

_CONTEXT = 12
"""Equal words that are shown on each side of a difference."""

Change = Literal["same", "gone", "come", "left out"]


@dataclass(frozen=True)
class Tally:
    """Documents, and the UTF-8 bytes of their text."""

    documents: int
    text_bytes: int

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.documents + other.documents, self.text_bytes + other.text_bytes)


@dataclass(frozen=True)
class Shown:
    """A document that the page shows.

    Attributes:
        id: its id.
        source: its source.
        url: its address, or empty.
        text: its text.
    """

    id: str
    source: str
    url: str
    text: str


@dataclass(frozen=True)
class Member:
    """A removed document of a cluster, and the one that stays in its place."""

    shown: Shown
    reason: str
    duplicate_of: str
    containment: float | None


@dataclass(frozen=True)
class Cluster:
    """A document that stays, with those that it stands for.

    Attributes:
        id: its name, the id of the document that stays.
        documents: how many it has.
        text_bytes: UTF-8 bytes of their text.
        kept: how many stay.
        survivors: what stays in the place of the shown members.
        members: some that are removed, by least id.
    """

    id: str
    documents: int
    text_bytes: int
    kept: int
    survivors: tuple[Shown, ...]
    members: tuple[Member, ...]


@dataclass(frozen=True)
class Checked:
    """A removed document that was compared again with the one that stays.

    Attributes:
        id: its id.
        duplicate_of: id of the document that stays.
        reason: why it was removed.
        stated: containment in the verdict, None where no text was compared.
        found: containment found again from both texts.
        right: whether that is enough; documents of one address need no equal text.
    """

    id: str
    duplicate_of: str
    reason: str
    stated: float | None
    found: float
    right: bool


@dataclass(frozen=True)
class Summary:
    """All that the report says.

    Attributes:
        title: heading.
        documents: all documents that took part.
        text_bytes: UTF-8 bytes of their text.
        removed: what was removed, by reason.
        by_source: what was removed, by source and reason.
        pairs: what was removed, by its source and that of the document that stays.
        clusters: number of clusters.
        sizes: clusters by the least number of documents in their bin; bins double.
        largest: the largest clusters.
        sample: removed documents that were checked again.
        containment: share of n-grams that a near copy has to have in the document that stays.
        further: counts of the step itself.
    """

    title: str
    documents: int
    text_bytes: int
    removed: Mapping[str, Tally]
    by_source: Mapping[str, Mapping[str, Tally]]
    pairs: Mapping[tuple[str, str], Tally]
    clusters: int
    sizes: Mapping[int, int]
    largest: tuple[Cluster, ...]
    sample: tuple[Checked, ...]
    containment: float
    further: Mapping[str, Any]

    @property
    def gone(self) -> Tally:
        """All that was removed."""
        return sum(self.removed.values(), Tally(0, 0))

    @property
    def precision(self) -> float | None:
        """Share of the checked removals that are right; None without any."""
        return sum(one.right for one in self.sample) / len(self.sample) if self.sample else None

    def to_json(self) -> dict[str, Any]:
        """The numbers, without texts: equal for every sharding of the same documents."""
        return {
            **self.further,
            "documents": self.documents,
            "text_bytes": self.text_bytes,
            "kept": self.documents - self.gone.documents,
            "removed": {reason: tally.documents for reason, tally in self.removed.items()},
            "removed_bytes": {reason: tally.text_bytes for reason, tally in self.removed.items()},
            "by_source": {
                source: {reason: asdict(tally) for reason, tally in tallies.items()}
                for source, tallies in self.by_source.items()
            },
            "pairs": [{"source": source, "of": kept, **asdict(tally)} for (source, kept), tally in self.pairs.items()],
            "clusters": self.clusters,
            "cluster_sizes": {str(least): count for least, count in self.sizes.items()},
            "largest_clusters": [
                {
                    "id": cluster.id,
                    "documents": cluster.documents,
                    "text_bytes": cluster.text_bytes,
                    "kept": cluster.kept,
                    "survivors": [{"id": one.id, "url": one.url or None} for one in cluster.survivors],
                    "members": [member.shown.id for member in cluster.members],
                }
                for cluster in self.largest
            ],
            "sample": {
                "documents": len(self.sample),
                "precision": self.precision,
                "wrong": [asdict(one) for one in self.sample if not one.right],
            },
        }


def word_changes(kept: str, member: str) -> list[tuple[Change, str]]:
    """What makes a member's text of the kept one: runs of words that are the same, gone or come.

    Of long equal runs only the words next to a difference are told. Only the beginnings of long texts are compared.
    """
    before, after = kept.split(None, DIFF_WORDS)[:DIFF_WORDS], member.split(None, DIFF_WORDS)[:DIFF_WORDS]
    found: list[tuple[Change, str]] = []
    steps = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    for number, (kind, start, end, new_start, new_end) in enumerate(steps):
        if kind == "equal":
            found.extend(_abbreviated(before[start:end], number > 0, number + 1 < len(steps)))
            continue
        if end > start:
            found.append(("gone", " ".join(before[start:end])))
        if new_end > new_start:
            found.append(("come", " ".join(after[new_start:new_end])))
    return found


def _abbreviated(words: list[str], after_change: bool, before_change: bool) -> list[tuple[Change, str]]:
    head = _CONTEXT if after_change else 0
    tail = _CONTEXT if before_change else 0
    if not (after_change or before_change):
        head = 2 * _CONTEXT
    if len(words) <= head + tail:
        return [("same", " ".join(words))]
    parts: list[tuple[Change, str]] = [("left out", f"{len(words) - head - tail:,} equal words")]
    if head:
        parts.insert(0, ("same", " ".join(words[:head])))
    if tail:
        parts.append(("same", " ".join(words[-tail:])))
    return parts


def report_page(summary: Summary) -> str:
    """One HTML page that needs nothing beside it. All text of documents is escaped."""
    page: str = template("marin.data.dedup", "templates/report.html").render(
        summary=summary,
        sizes=_bars({_size_label(least): count for least, count in summary.sizes.items()}),
        removed=_bars({reason: tally.documents for reason, tally in summary.removed.items()}),
        clusters=[_cluster(cluster) for cluster in summary.largest],
        excerpt=EXCERPT,
    )
    return page


def _bars(counts: Mapping[str, int]) -> list[dict[str, Any]]:
    most = max(counts.values(), default=0) or 1
    return [{"label": label, "count": count, "width": 100 * count / most} for label, count in counts.items()]


def _size_label(least: int) -> str:
    most = 2 * least - 1
    return f"{least:,}" if most == least else f"{least:,} to {most:,}"


def _cluster(cluster: Cluster) -> dict[str, Any]:
    """A cluster with, for each shown member, what differs from the document that stays."""
    kept = {one.id: one for one in cluster.survivors}
    members = [
        {"member": member, "changes": word_changes(kept[member.duplicate_of].text, member.shown.text)}
        for member in cluster.members
    ]
    return {"cluster": cluster, "members": members}
