"""Personal data: e-mail addresses, IP addresses, telephone numbers and access keys, counted as signals and masked.

E-mail addresses are found by datatrove's pattern. Its formatter replaces addresses in turn from a list, so that what a
document becomes depends on the documents before it; here every one becomes the same. It takes version numbers for IP
addresses, which are told apart here.
Every pattern is bounded in length and looked for around signs that are cheap to find, so that no text can make it slow.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from marin.data.filtering.addresses import ipv4_addresses
from marin.data.filtering.keys import key_blocks, keys, may_hold_key
from marin.data.filtering.personal import PERSONAL_KINDS, PersonalData

ADDRESSES = ("email", "ip")
"""The kinds that datatrove masks; it looks for no IP address of version 6, and takes versions for addresses."""

EMAIL = "email@example.com"
"""What every e-mail address becomes (RFC 2606 reserves the domain)."""

IP_ADDRESS = "192.0.2.1"
"""What every public IP address becomes (RFC 5737 reserves it for documentation)."""

IPV6_ADDRESS = "2001:db8::1"
"""What every public IP address of version 6 becomes (RFC 3849 reserves it for documentation)."""

PHONE = "555-0100"
"""What every telephone number becomes (the North American plan keeps it for fiction)."""

KEY = "REDACTED_KEY"
"""What every access key becomes."""

_BEFORE, _AFTER = 256, 255
"""Characters of an address that are looked at before its @ sign, and most after it (RFC 5321, section 4.5.3.1)."""
_LOCAL = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~.-]{1,256}")
_DOMAIN_START = re.compile(r"@(?:[A-Za-z0-9-]{1,63}\.[A-Za-z0-9]|\[)")
# What every address of a kind has. Patterns that begin with one sign are far cheaper to look for than those of the
# addresses, which try each digit of a text.
_COLONS = re.compile(":[0-9A-Fa-f]{1,4}:[0-9A-Fa-f]{1,4}:")
_PHONE_SIGNS = tuple(map(re.compile, (r"\+[1-9]", r"\([2-9][0-9]{2}\)", "-[0-9]{4}(?![0-9])", r"\.[0-9]{4}(?![0-9])")))
_DOTTED_NUMBERS = re.compile(r"[0-9]\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]")
# Of IPv6 only 2000::/3 has been given out (RFC 4291, IANA's registry), and nobody holds all that one first group stands
# for. So an address that can be reached begins with four digits, the first one 2 or 3, and a second group: no time of
# day, MAC address or scope such as std:: does.
_IPV6_START = re.compile(r"(?<![0-9A-Za-z_:.])[23][0-9A-Fa-f]{3}:[0-9A-Fa-f]")
_IPV6 = re.compile(
    r"(?<![0-9A-Za-z_:.])[23][0-9A-Fa-f]{3}:[0-9A-Fa-f][0-9A-Fa-f:]{2,33}+(?:(?:\.[0-9]{1,3}){3})?(?![0-9A-Za-z_])"
)
_IPV6_DOCUMENTATION = ipaddress.IPv6Network("3fff::/20")
"""RFC 9637; the standard library knows the older 2001:db8::/32."""
# E.164: a plus sign and at most 15 digits. Without the plus, only the North American form with its marks counts: what
# else has ten digits is rarely a telephone number.
_PHONE = re.compile(
    r"(?<![\w.+-])(?:\+[1-9][0-9]{0,2}(?:[ .-]?\(?[0-9]{2,4}\)?){2,5}"
    r"|(?:\([2-9][0-9]{2}\) ?|[2-9][0-9]{2}[-.])[2-9][0-9]{2}[-.][0-9]{4})(?![\w-]|\.[0-9])"
)
_DIGIT = re.compile("[0-9]")
_PHONE_PIECE = re.compile(r"\+[1-9]|\([2-9][0-9]{2}\)|[0-9]{3}[-.][0-9]{4}")
_PHONE_DIGITS = range(8, 16)


@dataclass(frozen=True)
class MaskedText:
    """A text without personal data, and how much of each kind it had.

    Attributes:
        text: the text with every find replaced.
        found: number of finds by kind, for the kinds that were looked for.
    """

    text: str
    found: dict[str, int] = field(default_factory=dict)

    @property
    def emails(self) -> int:
        """E-mail addresses found."""
        return self.found.get("email", 0)

    @property
    def ips(self) -> int:
        """Public IP addresses found."""
        return self.found.get("ip", 0)


def mask(text: str, kinds: Iterable[str] = ADDRESSES) -> MaskedText:
    """Replace all personal data of some kinds. Linear in the length of the text.

    Args:
        text: any text.
        kinds: out of ``PERSONAL_KINDS``.
    """
    wanted = frozenset(kinds)
    found: dict[str, int] = {}
    for kind in _MASKS:
        if kind in wanted:
            text, found[kind] = _MASKS[kind](text)
    return MaskedText(text, found)


@dataclass(frozen=True)
class TreatedText:
    """A text after its personal data was dealt with.

    Attributes:
        text: the text, with the finds of the masked kinds replaced.
        masked: number of finds by kind, where there were some, for kinds that are masked.
        flagged: the same for kinds that are flagged.
    """

    text: str
    masked: dict[str, int] = field(default_factory=dict)
    flagged: dict[str, int] = field(default_factory=dict)


def treat(text: str, policy: PersonalData) -> TreatedText:
    """Do with the personal data of a text what the policy says. Linear in the length of the text."""
    masked: dict[str, int] = {}
    flagged: dict[str, int] = {}
    for kind in _MASKS:
        treatment = policy.of(kind)
        if treatment == "keep":
            continue
        replaced, count = _MASKS[kind](text)
        if count and treatment == "mask":
            text, masked[kind] = replaced, count
        elif count:
            flagged[kind] = count
    return TreatedText(text, masked, flagged)


def may_be_personal(piece: str) -> bool:
    """Whether a piece without white space may hold personal data, or be part of it: never wrong when it says no.

    A line without such a piece need not be searched. Blocks of keys count by the lines that open and close them.
    """
    if "@" in piece or may_hold_key(piece):
        return True
    if not _DIGIT.search(piece):
        return False
    dotted = piece.count(".") >= 3 and _DOTTED_NUMBERS.search(piece)
    return bool(dotted or _PHONE_PIECE.search(piece) or _IPV6_START.search(piece))


def count_personal(text: str) -> dict[str, int]:
    """Numbers of finds in a text, for every kind."""
    return mask(text, PERSONAL_KINDS).found if text else dict.fromkeys(PERSONAL_KINDS, 0)


@functools.cache
def _email_pattern() -> re.Pattern[str]:
    from datatrove.pipeline.formatters.pii import PIIFormatter

    formatter: Any = PIIFormatter()
    pattern: re.Pattern[str] = formatter.emails_replacer.regex
    return pattern


def _replace(text: str, spans: Iterable[tuple[int, int]], replacement: str) -> tuple[str, int]:
    parts: list[str] = []
    done = count = 0
    for begin, end in spans:
        parts += (text[done:begin], replacement)
        done = end
        count += 1
    return ("".join([*parts, text[done:]]) if count else text), count


def _mask_emails(text: str) -> tuple[str, int]:
    return _replace(text, _emails(text), EMAIL) if "@" in text else (text, 0)


def _emails(text: str) -> Iterator[tuple[int, int]]:
    """Where addresses stand: each @ sign that a domain follows, with the signs before it that an address may have."""
    pattern = _email_pattern()
    done = 0
    for sign in _DOMAIN_START.finditer(text):
        at = sign.start()
        if at < done:
            continue
        local = _LOCAL.match(text[max(done, at - _BEFORE) : at][::-1])
        if local is None:
            continue
        address = pattern.search(text, at - local.end(), at + 1 + _AFTER)
        if address:
            yield address.span()
            done = address.end()


def _mask_ips(text: str) -> tuple[str, int]:
    # The long form may end in a dotted one, so it comes first.
    long = 0
    if "::" in text or _COLONS.search(text):
        text, long = _replace(text, _ipv6_addresses(text), IPV6_ADDRESS)
    text, short = _replace(text, ipv4_addresses(text), IP_ADDRESS)
    return text, long + short


def _ipv6_addresses(text: str) -> Iterator[tuple[int, int]]:
    for found in _IPV6.finditer(text):
        written = found.group()
        # A sentence may go on with a colon behind an address.
        if written.endswith(":") and not written.endswith("::"):
            written = written[:-1]
        try:
            address = ipaddress.IPv6Address(written)
        except ValueError:
            continue
        if address.is_global and address not in _IPV6_DOCUMENTATION:
            yield found.start(), found.start() + len(written)


def _mask_phones(text: str) -> tuple[str, int]:
    if not any(sign.search(text) for sign in _PHONE_SIGNS):
        return text, 0
    return _replace(text, (one.span() for one in _PHONE.finditer(text) if _is_phone(one.group())), PHONE)


def _is_phone(number: str) -> bool:
    return sum(map(str.isdigit, number)) in _PHONE_DIGITS


def _mask_keys(text: str) -> tuple[str, int]:
    text, blocks = _replace(text, key_blocks(text), KEY)
    text, single = _replace(text, keys(text), KEY)
    return text, blocks + single


# In the order in which they are replaced. Keys come first: the password and host in the address of a database look like
# an e-mail address.
_MASKS: dict[str, Callable[[str], tuple[str, int]]] = {
    "key": _mask_keys,
    "email": _mask_emails,
    "ip": _mask_ips,
    "phone": _mask_phones,
}
