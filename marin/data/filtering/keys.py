"""Access keys in text: what services mark as theirs, secrets beside a name, passwords in addresses of databases.

A format is looked for by a mark that all its keys have, which most texts lack, and matched only there. What is found
must look drawn by chance: placeholders such as ``xoxb-your-token-here`` and examples of documentation are left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

_Chance = Literal["mixed", "letters", "digits", "some", "any"]

_NAMES = ("ecret_access_key", "ecretAccessKey", "SECRET_ACCESS_KEY")
_DATABASES = ("postgres", "mysql", "mariadb", "mongodb", "redis", "amqp", "mssql", "sqlserver", "oracle")
_BLOCK_SIGNS = ("-----BEGIN", "-----END")
_START = r"(?<![A-Za-z0-9])"
_END = r"(?![A-Za-z0-9])"
_PLACEHOLDER = re.compile(
    r"example|your|placeholder|change-?me|dummy|sample|redacted|insert|[-_]here|x{4}|\*{3}|0{8}"
    r"|0123456789|1234567890abcdef|abcdefghij",
    re.IGNORECASE,
)
_FEWEST_SIGNS = 6
"""Different characters that a random key has at least; "aaaa…" and "0000…" have fewer."""


@dataclass(frozen=True)
class _Format:
    """Keys of one kind.

    Attributes:
        mark: what all of them have.
        lead: most characters of a match that stand before the mark.
        pattern: the match; its group ``secret`` is masked, or all of it.
        chance: what a random key must have. ``mixed``: a digit and a capital letter. ``letters``: capital and small
            letters. ``digits``: eight digits. ``some``: a digit or two capital letters. ``any``: nothing more.
    """

    mark: str
    lead: int
    pattern: re.Pattern[str]
    chance: _Chance


def _marked(chance: _Chance, *formats: tuple[str, str]) -> list[_Format]:
    return [_Format(mark, 0, re.compile(f"{_START}{re.escape(mark)}{rest}{_END}"), chance) for mark, rest in formats]


def _beside(chance: _Chance, lead: int, pattern: str, *marks: str) -> list[_Format]:
    return [_Format(mark, lead, re.compile(pattern), chance) for mark in marks]


# Lengths are those that the services or their scanning partners publish; newer keys tend to be longer.
_FORMATS = (
    *_marked("some", *((f"gh{kind}_", "[A-Za-z0-9]{36,255}") for kind in "oprsu")),
    *_marked("some", ("github_pat_", "[A-Za-z0-9_]{22,255}"), ("npm_", "[A-Za-z0-9]{36}")),
    *_marked("some", ("glpat-", r"[A-Za-z0-9_-]{20,64}(?:\.[0-9a-z]{2}\.[0-9a-z]{9})?")),
    *_marked("some", *((f"{kind}k_{mode}_", "[A-Za-z0-9]{16,250}") for kind in "rs" for mode in ("live", "test"))),
    *_marked("some", ("pypi-AgE", "[A-Za-z0-9_-]{40,500}")),
    *_marked("some", ("SG.", r"[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{32,64}")),
    *_marked("letters", ("hf_", "[A-Za-z0-9]{30,64}")),
    *_marked("mixed", ("sk-", "[A-Za-z0-9_-]{20,250}"), ("AIza", "[A-Za-z0-9_-]{35}")),
    *_marked("any", ("AKIA", "[0-9A-Z]{16}"), ("ASIA", "[0-9A-Z]{16}"), ("SK", "[0-9a-f]{32}")),
    *_marked(
        "digits", ("xox", r"[abeoprs](?:\.xox[bp])?-[A-Za-z0-9-]{10,250}"), ("xapp-", "[0-9]-[A-Za-z0-9-]{10,250}")
    ),
    *_marked("some", ("eyJ", r"[A-Za-z0-9_-]{10,300}\.eyJ[A-Za-z0-9_-]{10,1000}\.[A-Za-z0-9_-]{10,1000}")),
    # Telegram: the number of a bot, and 35 signs.
    *_beside("mixed", 10, r"(?<![0-9A-Za-z])[0-9]{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])", ":AA"),
    # AWS, beside its name.
    *_beside(
        "mixed",
        0,
        r"(?:ecret_access_key|ecretAccessKey|SECRET_ACCESS_KEY)[\"']?[ \t]{0,4}[:=]>?[ \t]{0,4}[\"']?"
        r"(?P<secret>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])",
        *_NAMES,
    ),
    # Azure: 32 or 64 bytes in base 64.
    *_beside("mixed", 0, r"Acc(?:ount|ess)Key=(?P<secret>[A-Za-z0-9/+]{42,86}={1,2})", "AccountKey=", "AccessKey="),
    # Databases: name, password and host go together, since the latter two would read as an e-mail address.
    *_beside(
        "any",
        0,
        r"[a-z]+(?:\+[a-z0-9]{1,12})?://(?P<secret>(?P<user>[^\s:/@\"'<>]{0,64}):(?!(?:my)?(?:password|pass|pwd|pw|secret)@)"
        r"(?!(?P=user)@)[^\s@/\"'<>$:{}\[\]*]{4,128}@[A-Za-z0-9.-]{1,253})",
        *_DATABASES,
    ),
    *_beside(
        "some",
        0,
        r"(?:assword|ASSWORD|[Pp]wd|PWD)=(?P<secret>(?![/$%{])[^\s;\"'<>&${}]{8,128});",
        *("assword=", "ASSWORD=", "Pwd=", "pwd=", "PWD="),
    ),
)

# By a sign that all of them have: most texts lack it, and need not be searched for each mark.
_SIGNS = ("://", "xox", "_", "-", "A", "S", "=", "eyJ")


def _sign(one: _Format) -> str:
    return "://" if one.mark in _DATABASES else next(sign for sign in _SIGNS if sign in one.mark)


_BY_SIGN = {sign: [one for one in _FORMATS if _sign(one) == sign] for sign in _SIGNS}
SIGNS_OF_KEYS = (*(one.mark for one in _FORMATS), *_BLOCK_SIGNS)
"""One of them is in every piece of text that may belong to a key."""

_BLOCK_START = re.compile(r"-----BEGIN ([A-Z ]{0,30})PRIVATE KEY( BLOCK)?-----")
_LONGEST_BLOCK = 8000
_SHORTEST = 13


def keys(text: str) -> Iterator[tuple[int, int]]:
    """Where keys stand, in the order of the text and apart from one another."""
    found = sorted(span for sign, formats in _BY_SIGN.items() if sign in text for span in _spans(text, formats))
    done = 0
    for begin, end in found:
        if begin >= done:
            yield begin, end
            done = end


def may_hold_key(piece: str) -> bool:
    """Whether a piece without white space may hold a key or open or close a block of one."""
    if piece.endswith(_BLOCK_SIGNS) or any(name in piece for name in _NAMES):
        return True
    return len(piece) >= _SHORTEST and next(keys(piece), None) is not None


def key_blocks(text: str) -> Iterator[tuple[int, int]]:
    """Where private keys stand, from the line that opens one to the line that closes it."""
    if _BLOCK_SIGNS[0] not in text:
        return
    done = 0
    for start in _BLOCK_START.finditer(text):
        if start.start() < done:
            continue
        close = f"-----END {start[1]}PRIVATE KEY{start[2] or ''}-----"
        end = text.find(close, start.end(), start.end() + _LONGEST_BLOCK)
        if end >= 0:
            done = end + len(close)
            yield start.start(), done


def _spans(text: str, formats: list[_Format]) -> Iterator[tuple[int, int]]:
    for one in formats:
        at = text.find(one.mark)
        while at >= 0:
            starts = range(max(0, at - one.lead), at + 1)
            match = next(filter(None, (one.pattern.match(text, start) for start in starts)), None)
            following = at + 1
            if match:
                secret = "secret" if one.pattern.groups else 0
                if _looks_random(match[secret], one.chance):
                    yield match.span(secret)
                # Also behind one that was turned down: a run of marks would be searched again from each.
                following = match.end()
            at = text.find(one.mark, following)


def _looks_random(key: str, chance: _Chance) -> bool:
    """Whether it looks drawn by chance; placeholders and names with hyphens do not."""
    if _PLACEHOLDER.search(key) or len(set(key)) < _FEWEST_SIGNS:
        return False
    digits = sum(map(str.isdigit, key))
    capitals = sum(map(str.isupper, key.removeprefix("AIza")))
    if chance == "mixed":
        plain = re.fullmatch("sk-[0-9a-f]{32}", key) is not None
        return digits > 0 and (capitals > 0 or plain)
    if chance == "letters":
        return capitals > 3 and sum(map(str.islower, key)) > 3
    if chance == "some":
        return digits > 0 or capitals > 1
    return chance == "any" or digits >= 8
