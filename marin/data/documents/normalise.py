"""The one text form that is stored, hashed and tokenised."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

# Everything that some reader takes for a line break: CRLF, CR, VT, FF, FS-RS, NEL, LS, PS.
_LINE_BREAKS = re.compile("\r\n|[\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")
# C0 controls except tab and newline, DEL, the rest of C1, and the byte order mark wherever it stands.
_STRIPPED = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\ufeff]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_LONG_RUN = 32
"""Combining marks in a row that no script has; the standard's own stream-safe form ends a run at 30."""


@dataclass(frozen=True)
class NormalisedText:
    """A text in stored form, with what it cost to get there.

    Attributes:
        text: valid Unicode in NFC, with ``\\n`` as its only line break and tab as its only other control.
        stripped: number of control characters that were taken out.
        surrogates: number of surrogate code points that were found (pairs are joined, lone ones become U+FFFD).
    """

    text: str
    stripped: int
    surrogates: int


def normalise(text: str) -> NormalisedText:
    """Bring a text into stored form and count what was changed. Idempotent, linear in the length."""
    text, surrogates = _join_surrogates(text)
    text = _LINE_BREAKS.sub("\n", text)
    text, stripped = _STRIPPED.subn("", text)
    text = _order_marks(text)
    if not unicodedata.is_normalized("NFC", text):
        text = unicodedata.normalize("NFC", text)
    return NormalisedText(text=text, stripped=stripped, surrogates=surrogates)


def normalise_text(text: str) -> str:
    """The stored form of a text (see :func:`normalise`)."""
    return normalise(text).text


def _join_surrogates(text: str) -> tuple[str, int]:
    """Join surrogate pairs that were decoded apart, and replace lone surrogates with U+FFFD."""
    if text.isascii():
        return text, 0
    count = len(_SURROGATES.findall(text))
    if not count:
        return text, 0
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace"), count


def _order_marks(text: str) -> str:
    """The same text in the eyes of Unicode, with long runs of combining marks in the order that NFC gives them.

    ``unicodedata`` sorts a run by insertion: a page of a hundred thousand marks would hold up its task for a minute.
    """
    if text.isascii():
        return text
    parts: list[str] = []
    done = at = 0
    # A long run covers one of every _LONG_RUN places, so the others need not be looked at.
    while at < len(text):
        end = at
        if unicodedata.combining(text[at]):
            begin = at
            while begin > done and unicodedata.combining(text[begin - 1]):
                begin -= 1
            while end < len(text) and unicodedata.combining(text[end]):
                end += 1
            if end - begin >= _LONG_RUN:
                marks = "".join(unicodedata.normalize("NFD", mark) for mark in text[begin:end])
                parts += (text[done:begin], "".join(sorted(marks, key=unicodedata.combining)))
                done = end
        at = (end // _LONG_RUN + 1) * _LONG_RUN
    return "".join([*parts, text[done:]]) if parts else text
