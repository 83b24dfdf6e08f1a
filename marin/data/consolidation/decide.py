"""The fate of every document, from its signals and the verdicts on it: a pure function without texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from marin.data.consolidation.config import Policy
from marin.data.filtering.config import LanguageConfig, Rules
from marin.data.filtering.rules import REASONS, failed_rules

DROP_ORDER: tuple[str, ...] = (
    "takedown",
    "licence_unknown",
    "licence_other",
    *REASONS,
    "duplicate_exact",
    "duplicate_fuzzy",
    "contaminated",
)
"""Every reason for which a document is dropped. A document with several is counted under the first."""


@dataclass
class Facts:
    """What is known of all documents, one entry each, in the order of shards and rows.

    Attributes:
        ids: document ids.
        sources: their sources.
        signals: their signal columns.
        duplicate_reasons: why each is a duplicate, or None.
        duplicate_of: the document that stands in for it, or None.
        contaminated: whether it overlaps an evaluation item.
        takedowns: why it is on the takedown list, or None.
        licences: its licence, where the policy asks for it; else empty.
        scores: probability to be of the positive set of the quality classifier.
        buckets: quality bucket.
        topics: topic.
    """

    ids: list[str] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    signals: list[dict[str, Any]] = field(default_factory=list)
    duplicate_reasons: list[str | None] = field(default_factory=list)
    duplicate_of: list[str | None] = field(default_factory=list)
    contaminated: list[bool] = field(default_factory=list)
    takedowns: list[str | None] = field(default_factory=list)
    licences: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    buckets: list[int] = field(default_factory=list)
    topics: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Fates:
    """For each document the reason it is dropped for, or None."""

    reasons: list[str | None]

    def dropped(self) -> dict[str, int]:
        """Number of documents by reason, in the documented order."""
        counts = Counter(reason for reason in self.reasons if reason is not None)
        order = {reason: at for at, reason in enumerate(DROP_ORDER)}
        return dict(sorted(counts.items(), key=lambda item: (order.get(item[0], len(order)), item[0])))


def decide(facts: Facts, policy: Policy) -> Fates:
    """Apply the policy."""
    filtered = [
        "takedown" if taken else licence or reason
        for taken, licence, reason in zip(
            _taken_down(facts, policy), _licence_reasons(facts, policy), _filter_reasons(facts, policy), strict=True
        )
    ]
    copies = _copies(facts, filtered, policy)
    reasons = [
        filter_reason or copy or ("contaminated" if policy.drop_contaminated and contaminated else None)
        for filter_reason, copy, contaminated in zip(filtered, copies, facts.contaminated, strict=True)
    ]
    return Fates(reasons)


def _filter_reasons(facts: Facts, policy: Policy) -> list[str | None]:
    if policy.rules is None and policy.language is None:
        return [row["reason"] for row in facts.signals]
    # A group of rules that the policy leaves open keeps its own reasons from the signals.
    found: list[str | None] = []
    for row in facts.signals:
        kept = [reason for reason in row["reasons"] if _stays(reason, policy)]
        judged = failed_rules(
            row,
            policy.rules or Rules(repetition=None, words=None, sentences=None, lines=None),
            policy.language or LanguageConfig(keep=(), minimum_score=0.0),
        )
        reasons = {*kept, *judged}
        found.append(min(reasons, key=DROP_ORDER.index) if reasons else None)
    return found


def _stays(reason: str, policy: Policy) -> bool:
    """Whether a reason of the signals holds under the policy without being judged again."""
    if reason.startswith("language"):
        return policy.language is None
    if reason.startswith(("gopher", "c4", "fineweb")):
        return policy.rules is None
    return True


def _licence_reasons(facts: Facts, policy: Policy) -> list[str | None]:
    if policy.licence.is_open:
        return [None] * len(facts.ids)
    return [policy.licence.reason(licence) for licence in facts.licences]


def _taken_down(facts: Facts, policy: Policy) -> list[bool]:
    """Whether each document is on the takedown list, or is a copy of one that is."""
    if not policy.takedown.copies:
        return [taken is not None for taken in facts.takedowns]
    # Copies name the one that stands in for them, so a listed copy takes that one and the others with it.
    originals = [original or own for own, original in zip(facts.ids, facts.duplicate_of, strict=True)]
    gone = {original for original, taken in zip(originals, facts.takedowns, strict=True) if taken is not None}
    return [original in gone for original in originals]


def _copies(facts: Facts, filtered: Sequence[str | None], policy: Policy) -> list[str | None]:
    """Why each document is dropped as a copy.

    When the document that stands in for others is itself dropped by other thresholds than duplicates were found with,
    the least of those that pass takes its place.
    """
    if not policy.drop_duplicates:
        return [None] * len(filtered)
    passing = {document_id for document_id, reason in zip(facts.ids, filtered, strict=True) if reason is None}
    heirs: dict[str, tuple[str, int]] = {}
    for at, (original, reason) in enumerate(zip(facts.duplicate_of, filtered, strict=True)):
        if original is not None and reason is None and original not in passing:
            heirs[original] = min(heirs.get(original, (facts.ids[at], at)), (facts.ids[at], at))
    standing = {at for _, at in heirs.values()}
    return [None if at in standing else reason for at, reason in enumerate(facts.duplicate_reasons)]
