"""Licences under one name, however they are written."""

from __future__ import annotations

import pytest

from marin.data.documents.licences import licence_name, licence_of
from marin.data.documents.schema import encode_metadata


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("https://creativecommons.org/licenses/by-sa/4.0/", "CC-BY-SA-4.0"),
        ("http://creativecommons.org/licenses/by-nc-nd/3.0/deed.de", "CC-BY-NC-ND-3.0"),
        ("https://creativecommons.org/publicdomain/zero/1.0/", "CC0-1.0"),
        ("CC BY-SA 4.0", "CC-BY-SA-4.0"),
        ("cc-by-4.0", "CC-BY-4.0"),
        ("CC-BY-NC", "CC-BY-NC"),
        ("MIT", "MIT"),
        ("apache-2.0", "Apache-2.0"),
        ("Public  Domain", "LicenseRef-PublicDomain"),
        ("House licence of 1987", "House licence of 1987"),
        ("", "unknown"),
        ("unknown", "unknown"),
    ],
)
def test_a_licence_has_one_name(text: str, name: str) -> None:
    assert licence_name(text) == name
    assert licence_name(name) == name


def test_metadata_come_before_the_source_and_what_is_no_text_tells_nothing() -> None:
    assert licence_of(encode_metadata({"license": "mit"}), "CC0-1.0") == "MIT"
    assert licence_of(encode_metadata({"licence": "cc0"})) == "CC0-1.0"
    for metadata in (
        {},
        {"license": None},
        {"license": ["mit"]},
        {"note": "the licence of all"},
        {"license": "unknown"},
    ):
        assert licence_of(encode_metadata(metadata), "CC0-1.0") == "CC0-1.0"
