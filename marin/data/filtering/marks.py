"""Pieces of text that some rule must look at again: marked once for each piece, so that texts need not be searched.

A mark may be there in vain, but never be missing.
"""

from __future__ import annotations

from marin.data.filtering.pii import may_be_personal

PERSONAL = 1
"""May hold personal data, or be part of it."""
POLICY = 2
"""Part of a phrase for which C4 passes over a line."""
FILLER = 4
"""Part of "lorem ipsum"."""
CITATION = 8
"""May hold a citation mark, which C4 takes out, or be part of one."""
CURLY = 16
"""Holds a curly bracket."""

POLICY_PHRASES = (
    *("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies"),
    "javascript",
)
"""What C4 passes over lines for, in lower case."""


def marks_of(piece: str) -> int:
    """The marks of a piece without white space, as bits."""
    lowered = piece.lower()
    policy = "javascript" in lowered or "policy" in lowered or "cookies" in lowered or "terms" in lowered
    marks = (POLICY if policy else 0) | (FILLER if "lorem" in lowered else 0)
    if piece.isalpha():
        return marks
    if "[" in piece:
        marks |= CITATION
    if "{" in piece:
        marks |= CURLY
    return marks | PERSONAL if may_be_personal(piece) else marks
