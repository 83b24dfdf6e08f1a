"""Licences under one name, however they are written."""

from __future__ import annotations

import pytest

from marin.data.consolidation.config import LicenceConfig
from marin.data.documents.licences import is_known, licence_name, licence_of
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
        ("mit", "MIT"),
        ("gpl-3.0-only", "GPL-3.0-only"),
        ("cc0-1.0", "CC0-1.0"),
        ("mit or apache-2.0", "mit or apache-2.0"),
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


@pytest.mark.parametrize(
    "name", ["MIT", "CC-BY-4.0", "CC-BY-SA-3.0", "CC-BY", "CC0-1.0", "GPL-3.0-only", "LicenseRef-PublicDomain"]
)
def test_a_name_that_documents_can_have_may_be_kept(name: str) -> None:
    assert is_known(name)
    assert LicenceConfig(keep=(name,)).reason(name) is None


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("ccby", "CC-BY-4.0"),
        ("cc-by-sa", "CC-BY-SA-4.0"),
        ("mit", "MIT"),
        ("CC BY-SA 3.0", "CC-BY-SA-3.0"),
        ("apache2", "Apache-2.0"),
        ("gpl3", "GPL-3.0-only"),
    ],
)
def test_a_name_that_no_document_has_is_refused_with_the_one_that_was_meant(name: str, meant: str) -> None:
    with pytest.raises(ValueError, match=rf"LicenceConfig\.keep names '{name}'.* did you mean '{meant}'"):
        LicenceConfig(keep=("MIT", name))


def test_a_name_of_ones_own_is_kept_by_a_pattern_and_what_is_unknown_by_its_own_setting() -> None:
    with pytest.raises(
        ValueError, match=r"names 'House licence', which is no SPDX name\. .* such as 'House licence\*'"
    ):
        LicenceConfig(keep=("House licence",))
    assert LicenceConfig(keep=("House licence*",)).reason(licence_name("House licence of 1987")) is None
    with pytest.raises(ValueError, match="keep_unknown"):
        LicenceConfig(keep=("unknown",))
