"""Licences of documents under one name each (SPDX identifiers where there is one)."""

from __future__ import annotations

import json
import re

UNKNOWN = "unknown"
"""The licence of a document that nothing is said of."""

_KEYS = ("licence", "license")
_CREATIVE_COMMONS = re.compile(
    r"creativecommons\.org/(?:licenses/(?P<kind>by(?:-nc)?(?:-nd|-sa)?)/(?P<version>\d\.\d)|(?P<zero>publicdomain/zero))",
    re.IGNORECASE,
)
_WRITTEN = re.compile(r"cc[ -]?(?P<kind>by(?:[ -]nc)?(?:[ -](?:nd|sa))?)(?:[ -]?v?(?P<version>\d\.\d))?", re.IGNORECASE)
_NAMES = {
    "cc0": "CC0-1.0",
    "cc0-1.0": "CC0-1.0",
    "cc-zero": "CC0-1.0",
    "public domain": "LicenseRef-PublicDomain",
    "publicdomain": "LicenseRef-PublicDomain",
    "mit": "MIT",
    "mit license": "MIT",
    "apache": "Apache-2.0",
    "apache-2.0": "Apache-2.0",
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "bsd-2-clause": "BSD-2-Clause",
    "bsd-3-clause": "BSD-3-Clause",
    "isc": "ISC",
    "gfdl": "GFDL-1.3-or-later",
    "odc-by": "ODC-By-1.0",
    "unlicense": "Unlicense",
}
_LONGEST = 80


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
    return _NAMES.get(plain.lower(), plain[:_LONGEST])


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
