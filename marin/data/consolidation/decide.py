"""Why a document is dropped: the reasons in their order, and the policy's judgement of one document's signals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marin.data.consolidation.config import Policy
from marin.data.filtering.config import LanguageConfig, Rules
from marin.data.filtering.rules import REASONS, failed_rules

TAKEDOWN = "takedown"
CONTAMINATED = "contaminated"
NOTHING_LEFT = "nothing_left"

DROP_ORDER: tuple[str, ...] = (
    TAKEDOWN,
    "licence_unknown",
    "licence_other",
    *REASONS,
    "duplicate_exact",
    "duplicate_url",
    "duplicate_fuzzy",
    CONTAMINATED,
    NOTHING_LEFT,
)
"""Every reason for which a document is dropped. A document with several is counted under the first."""

_NO_RULES = Rules(repetition=None, words=None, sentences=None, lines=None)
_ANY_LANGUAGE = LanguageConfig(keep=(), minimum_score=0.0)


def in_drop_order(dropped: Mapping[str, int]) -> dict[str, int]:
    """Numbers by reason, in the documented order; reasons that it does not know come last."""
    order = {reason: at for at, reason in enumerate(DROP_ORDER)}
    return dict(sorted(dropped.items(), key=lambda item: (order.get(item[0], len(order)), item[0])))


def judges_again(policy: Policy) -> bool:
    """Whether the policy has thresholds of its own."""
    return policy.rules is not None or policy.language is not None


def filter_reason(row: Mapping[str, Any], policy: Policy) -> str | None:
    """Why a document is dropped for its signals, or None.

    A group of rules that the policy leaves open keeps its own reasons from the signals.

    Args:
        row: its signal columns.
        policy: the policy.
    """
    if not judges_again(policy):
        reason: str | None = row["reason"]
        return reason
    kept = [reason for reason in row["reasons"] if _stays(reason, policy)]
    judged = failed_rules(row, policy.rules or _NO_RULES, policy.language or _ANY_LANGUAGE)
    return min({*kept, *judged}, key=DROP_ORDER.index, default=None)


def _stays(reason: str, policy: Policy) -> bool:
    """Whether a reason of the signals holds under the policy without being judged again."""
    if reason.startswith("language"):
        return policy.language is None
    if reason.startswith(("gopher", "c4", "fineweb")):
        return policy.rules is None
    return True
