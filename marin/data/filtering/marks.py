"""Pieces of text that some rule must look at again: marked once for each piece, so that texts need not be searched.

A mark may be there in vain, but never be missing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from marin.data.filtering.keys import SIGNS_OF_KEYS
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
OVERLONG = 32
"""Longer than any word that C4 lets stand in a line."""

POLICY_PHRASES = (
    *("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies"),
    "javascript",
)
"""What C4 passes over lines for, in lower case."""

_POLICY_PARTS = ("javascript", "policy", "cookies", "terms")
"""One of them is in a piece of each of the phrases."""
_LONGEST_WORD = 1000


def marks_of_all(pieces: Sequence[str]) -> NDArray[np.uint8]:
    """The marks of pieces without white space, as bits.

    Found in one text of all pieces, since few are marked and a search costs less than a call for each.
    """
    marks = np.zeros(len(pieces), np.uint8)
    lowered = [piece.lower() for piece in pieces]
    for mark, parts, of in (
        (POLICY, _POLICY_PARTS, lowered),
        (FILLER, ("lorem",), lowered),
        (CITATION, ("[",), pieces),
        (CURLY, ("{",), pieces),
    ):
        marks[_holders(of, parts)] |= mark
    marks[np.fromiter(map(len, pieces), np.int64, len(pieces)) > _LONGEST_WORD] |= OVERLONG
    marks[[number for number in _suspicious(pieces) if may_be_personal(pieces[number])]] |= PERSONAL
    return marks


def _suspicious(pieces: Sequence[str]) -> list[int]:
    """Numbers of pieces that hold what is in every piece for which ``may_be_personal`` says yes, by their bytes."""
    text = "\n".join(pieces).encode("utf-8", "replace")
    # Four zero bytes on either side, so that every byte has neighbours.
    padded = np.frombuffer(bytes(4) + text + bytes(4), np.uint8)
    digits = padded - np.uint8(ord("0")) < 10

    def sign(which: str) -> NDArray[np.bool_]:
        there: NDArray[np.bool_] = padded[4:-4] == ord(which)
        return there

    def digit(offset: int) -> NDArray[np.bool_]:
        return digits[4 + offset : len(digits) - 4 + offset]

    address = (sign(".") & digit(-1) & digit(1)) | (sign(":") & digit(-4)) | sign("@")
    number = (sign("-") | sign(".")) & digit(-1) & digit(1) & digit(2) & digit(3) & digit(4)
    number |= (sign("+") | sign("(")) & digit(1)
    places = np.flatnonzero(address | number)
    by_sign = np.searchsorted(np.flatnonzero(sign("\n")), places)
    found: list[int] = np.union1d(by_sign, _holders(pieces, SIGNS_OF_KEYS)).tolist()
    return found


def _holders(pieces: Sequence[str], parts: Sequence[str]) -> NDArray[np.int64]:
    """Numbers of the pieces that hold one of some parts."""
    text = "\n".join(pieces)
    places: list[int] = []
    for part in parts:
        at = text.find(part)
        while at >= 0:
            places.append(at)
            at = text.find(part, at + 1)
    ends = np.cumsum(np.fromiter(map(len, pieces), np.int64, len(pieces)) + 1)
    return np.unique(np.searchsorted(ends, places, side="right"))
