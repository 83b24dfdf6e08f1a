"""Personal data: e-mail and IP addresses by datatrove's patterns, counted as signals and masked in consolidation.

datatrove's formatter replaces addresses in turn from a list, so that what a document becomes depends on the documents
before it; here every address becomes the same one. Its e-mail pattern is slow on long runs without spaces, so only the
pieces around an @ sign are searched.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

EMAIL = "email@example.com"
"""What every e-mail address becomes (RFC 2606 reserves the domain)."""

IP_ADDRESS = "192.0.2.1"
"""What every public IP address becomes (RFC 5737 reserves it for documentation)."""

_PIECE_WITH_AT = re.compile(r"(?<!\S)\S*@\S*")
# What every dotted address has; cheaper to look for than the pattern, which tries each digit of a text.
_DOTTED_NUMBERS = re.compile(r"[0-9]\.[0-9]{1,3}\.[0-9]")
_DOMAIN_START = re.compile(r"@(?:[A-Za-z0-9-]{1,63}\.[A-Za-z0-9]|\[)")
_LONGEST_PIECE = 1000
_BEFORE, _AFTER = 64, 255
"""Most characters of an address before and after its @ sign (RFC 5321, section 4.5.3.1)."""


@dataclass(frozen=True)
class MaskedText:
    """A text without addresses, and how many of each kind it had."""

    text: str
    emails: int
    ips: int


@functools.cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], Callable[[str], bool]]:
    from datatrove.pipeline.formatters.pii import PIIFormatter

    formatter: Any = PIIFormatter()
    return formatter.emails_replacer.regex, formatter.ip_replacer.regex, formatter.ip_replacer.validator


def mask(text: str) -> MaskedText:
    """Replace every e-mail address and every public IP address. Linear in the length of the text."""
    emails = ips = 0
    email, ip, is_public = _patterns()

    def replace_email(found: re.Match[str]) -> str:
        nonlocal emails
        emails += 1
        return EMAIL

    def replace_piece(found: re.Match[str]) -> str:
        piece = found.group()
        if len(piece) <= _LONGEST_PIECE:
            return email.sub(replace_email, piece)
        return _mask_long_piece(piece, email, replace_email)

    def replace_ip(found: re.Match[str]) -> str:
        nonlocal ips
        if not is_public(found.group()):
            return found.group()
        ips += 1
        return IP_ADDRESS

    if "@" in text:
        text = _PIECE_WITH_AT.sub(replace_piece, text)
    if _DOTTED_NUMBERS.search(text):
        text = ip.sub(replace_ip, text)
    return MaskedText(text, emails, ips)


def count_addresses(text: str) -> tuple[int, int]:
    """Numbers of e-mail addresses and public IP addresses in a text."""
    masked = mask(text)
    return masked.emails, masked.ips


def _mask_long_piece(piece: str, email: re.Pattern[str], replace: Callable[[re.Match[str]], str]) -> str:
    """Mask a long run without spaces through a window around each @ sign that a domain follows."""
    parts: list[str] = []
    done = 0
    for sign in _DOMAIN_START.finditer(piece):
        at = sign.start()
        if at < done:
            continue
        begin = max(done, at - _BEFORE)
        end = min(len(piece), at + 1 + _AFTER)
        found = email.search(piece[begin:end])
        if found:
            parts.append(piece[done : begin + found.start()])
            parts.append(replace(found))
            done = begin + found.end()
    parts.append(piece[done:])
    return "".join(parts)
