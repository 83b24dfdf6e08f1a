"""Licences of documents under one name each (SPDX identifiers where there is one)."""

from __future__ import annotations

import difflib
import functools
import json
import re

UNKNOWN = "unknown"
"""The licence of a document that nothing is said of."""

_KEYS = ("licence", "license")
_CREATIVE_COMMONS = re.compile(
    r"creativecommons\.org/(?:licenses/(?P<kind>by(?:-nc)?(?:-nd|-sa)?)/(?P<version>\d\.\d)|(?P<zero>publicdomain/zero))",
    re.IGNORECASE,
)
_CC_KINDS = ("BY", "BY-SA", "BY-NC", "BY-ND", "BY-NC-SA", "BY-NC-ND")
_WRITTEN = re.compile(r"cc[ -]?(?P<kind>by(?:[ -]nc)?(?:[ -](?:nd|sa))?)(?:[ -]?v?(?P<version>\d\.\d))?", re.IGNORECASE)
_NAMES = {
    "cc0": "CC0-1.0",
    "cc-zero": "CC0-1.0",
    "public domain": "LicenseRef-PublicDomain",
    "publicdomain": "LicenseRef-PublicDomain",
    "mit license": "MIT",
    "apache": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "gfdl": "GFDL-1.3-or-later",
    "odc-by": "ODC-By-1.0",
}
"""Names that are no SPDX identifiers."""

_IDENTIFIER = re.compile(r"[A-Za-z0-9.+-]{2,80}")
_LONGEST = 80
_KNOWN_DISTANCE = 0.6


def licence_name(text: str) -> str:
    """The one name of a licence that is given by name or URL; a name that is not known stays as it is.

    >>> licence_name("https://creativecommons.org/licenses/by-sa/4.0/deed.en")
    'CC-BY-SA-4.0'
    """
    plain = " ".join(text.split())
    if not plain or plain.lower() in ("unknown", "none", "other", "n/a"):
        return UNKNOWN
    found = _CREATIVE_COMMONS.search(plain)
    if found is not None:
        return "CC0-1.0" if found["zero"] else f"CC-{found['kind'].upper()}-{found['version']}"
    written = _WRITTEN.fullmatch(plain)
    if written is not None:
        kind = written["kind"].upper().replace(" ", "-")
        return f"CC-{kind}-{written['version']}" if written["version"] else f"CC-{kind}"
    return _NAMES.get(plain.lower()) or _spdx_name(plain) or plain[:_LONGEST]


def is_known(name: str) -> bool:
    """Whether a name is one that `licence_name` gives to licences it knows."""
    known = name in _NAMES.values() or _WRITTEN.fullmatch(name) is not None or _spdx_name(name) is not None
    return known and licence_name(name) == name


def likely_name(text: str) -> str | None:
    """The known name that was meant, or None.

    >>> likely_name("cc0"), likely_name("ccby"), likely_name("public house")
    ('CC0-1.0', 'CC-BY-4.0', None)
    """
    name = licence_name(text)
    if is_known(name):
        return f"{name}-4.0" if name.removeprefix("CC-") in _CC_KINDS else name
    common = {
        "".join(filter(str.isalnum, one.lower())): one
        for one in (*(f"CC-{kind}-4.0" for kind in _CC_KINDS), *_NAMES.values(), "MIT", "BSD-3-Clause", "GPL-3.0-only")
    }
    plain = "".join(filter(str.isalnum, text.lower()))
    close = difflib.get_close_matches(plain, common, n=1, cutoff=_KNOWN_DISTANCE)
    return common[close[0]] if close else None


def _spdx_name(text: str) -> str | None:
    return _spelling(text) if _IDENTIFIER.fullmatch(text) else None


@functools.lru_cache(maxsize=4096)
def _spelling(identifier: str) -> str | None:
    """An SPDX identifier as SPDX spells it, or None; cached, because the documents of a source have few of them."""
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    try:
        return str(canonicalize_license_expression(identifier))
    except InvalidLicenseExpression:
        return None


def licence_of(metadata: str, default: str = UNKNOWN) -> str:
    """The licence that a document's metadata (JSON text) tells, or the default."""
    if "licen" not in metadata:
        return default
    values = json.loads(metadata)
    for key in _KEYS:
        value = values.get(key)
        if isinstance(value, str) and licence_name(value) != UNKNOWN:
            return licence_name(value)
    return default
