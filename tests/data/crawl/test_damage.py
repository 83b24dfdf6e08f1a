"""Archives that are damaged at random: what the damage does not touch is found, and what it takes away is counted.

`operations/soak/pages.py` looks at many more of them.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.data.crawl.extraction.isolation import IsolatedExtractor
from tests.data.crawl.damage import PACKINGS, archive, damaged, faults_of_reading, mangled_page, read
from tests.data.crawl.page_kinds import make_page

SEEDS = st.integers(0, 2**32)


@pytest.mark.parametrize("packing", PACKINGS)
@settings(max_examples=120, deadline=None)
@given(seed=SEEDS)
def test_damage_costs_no_record_but_those_that_it_touches(packing: str, seed: int) -> None:
    choice = random.Random(seed)
    whole = archive(choice, packing)
    data, touched = damaged(choice, whole, choice.randint(1, 4))
    assert faults_of_reading(whole, data, touched) == []


@pytest.mark.parametrize("packing", ["plain", "gzip", "zstd"])
@settings(max_examples=60, deadline=None)
@given(seed=SEEDS)
def test_damage_costs_no_more_where_a_file_is_read_in_parts(packing: str, seed: int) -> None:
    choice = random.Random(seed)
    whole = archive(choice, packing)
    data, touched = damaged(choice, whole, choice.randint(1, 3))
    assert faults_of_reading(whole, data, touched, part_bytes=max(1, len(data) // choice.randint(2, 7))) == []


@pytest.mark.parametrize("packing", sorted(PACKINGS.keys() - {"plain"}))
def test_archives_that_are_joined_keep_what_is_whole_behind_damage(packing: str) -> None:
    choice = random.Random(1)
    first, second = archive(choice, packing), archive(choice, packing)
    spoilt = bytearray(first.data)
    middle = len(spoilt) // 2
    spoilt[middle : middle + 40] = choice.randbytes(40)
    records, _ = read(bytes(spoilt) + second.data)
    blocks = [record.block for record in records if not record.fault]
    assert blocks[-len(second.records) :] == [item.split(b"\r\n\r\n", 1)[1][:-4] for item in second.records]
    assert any(record.fault for record in records)


def test_mangled_pages_are_extracted_in_time_and_bring_no_worker_down() -> None:
    choice = random.Random(0)
    kinds = [make_page(kind, language).html for kind in ("article", "forum", "shop") for language in ("en", "zh", "ar")]
    pages = [mangled_page(choice, choice.choice(kinds)) for _ in range(150)]
    with IsolatedExtractor("resiliparse", page_seconds=10.0, max_depth=512) as isolated:
        found = list(isolated.extract(pages))
        assert [one.failure for one in found] == [None] * len(pages)
        assert isolated.started == 1
