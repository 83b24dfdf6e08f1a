"""Which documents are copies of which, against a plain pairwise reading."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.data.dedup.clusters import Candidate, Verdicts, find_components, settle
from marin.data.dedup.config import DedupConfig
from marin.data.filtering.config import MinHashConfig
from marin.data.filtering.minhash import band_keys, content_hash, shingles
from marin.data.filtering.words import WordTable, plain_hashes_of
from tests.data.dedup.texts import changed, prose

MINHASH = MinHashConfig()
TABLE = WordTable()


def judge(
    texts: dict[str, str],
    config: DedupConfig = DedupConfig(),
    failing: frozenset[str] = frozenset(),
    source: str = "web",
) -> tuple[list[Candidate], Verdicts]:
    """Verdicts on texts by id; an id like ``a/x`` is of source a."""
    words = {name: plain_hashes_of(text, TABLE) for name, text in texts.items()}
    candidates = []
    for name, plain in words.items():
        keys = band_keys(plain, MINHASH)
        candidates.append(
            Candidate(
                id=name,
                source=name.partition("/")[0] if "/" in name else "web",
                passes=name not in failing,
                content=content_hash(plain),
                bands=None if keys is None else keys.tobytes(),
            )
        )
    components = find_components(candidates, config)
    grams = {at: shingles(words[candidates[at].id], config.n_gram) for at in components.wanted()}
    return candidates, settle(candidates, components, grams, config)


def removed(
    texts: dict[str, str], config: DedupConfig = DedupConfig(), failing: frozenset[str] = frozenset()
) -> dict[str, str]:
    candidates, verdicts = judge(texts, config, failing)
    return {candidates[at].id: candidates[kept].id for at, kept in enumerate(verdicts.kept.tolist()) if kept != at}


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_the_order_of_documents_changes_nothing_and_what_goes_is_contained_in_what_stays(seed: int) -> None:
    draw = random.Random(seed)
    texts: dict[str, str] = {}
    for number in range(24):
        base = prose(draw.randint(0, 5), sentences=8)
        texts[f"{draw.randint(0, 9)}-{number}"] = changed(base, draw.choice([0, 0, 1, 2, 8, 30]), seed=number)
    names = list(texts)
    expected = removed(texts)
    draw.shuffle(names)
    assert removed({name: texts[name] for name in names}) == expected
    grams = {name: set(shingles(plain_hashes_of(text, TABLE), 3).tolist()) for name, text in texts.items()}
    for gone, stays in expected.items():
        assert stays not in expected
        assert stays < gone
        assert len(grams[gone] & grams[stays]) >= 0.75 * len(grams[gone])


def test_all_exact_copies_and_nearly_all_near_ones_are_found_among_many() -> None:
    texts = {f"{number:03d}": prose(number) for number in range(60)}
    copies = {f"{number:03d}x": prose(number).upper().replace(" ", "\n") for number in range(20)}
    near = {f"{number:03d}y": changed(prose(number), 4, seed=number) for number in range(20, 40)}
    found = removed({**near, **copies, **texts})
    assert {name: found.get(name) for name in copies} == {name: name[:3] for name in copies}
    assert len(set(near) & set(found)) >= 19
    assert set(found) <= set(copies) | set(near)


def test_a_document_that_fails_the_filters_never_replaces_one_that_passes() -> None:
    texts = {"a": prose(1), "b": prose(1), "c": changed(prose(1), 2)}
    assert removed(texts, failing=frozenset({"a"})) == {"a": "b", "c": "b"}
    assert removed(texts, failing=frozenset({"a", "b"})) == {"a": "c", "b": "c"}


def test_the_preferred_source_stays_then_the_least_id() -> None:
    texts = {"a/1": prose(1), "b/2": prose(1), "b/1": prose(1)}
    assert removed(texts) == {"b/1": "a/1", "b/2": "a/1"}
    assert removed(texts, DedupConfig(priority=("b", "a"))) == {"a/1": "b/1", "b/2": "b/1"}


def test_a_chain_of_changes_does_not_vanish_with_its_first_link() -> None:
    texts = {"0": prose(1)}
    for link in range(1, 8):
        texts[str(link)] = changed(texts[str(link - 1)], 40, seed=link)
    grams = {name: set(shingles(plain_hashes_of(text, TABLE), 3).tolist()) for name, text in texts.items()}
    stays = set(texts) - set(removed(texts))
    assert len(stays) > 1
    assert all(any(len(g & grams[s]) >= 0.75 * len(g) for s in stays) for g in grams.values())


def test_rows_of_one_id_lose_all_but_one() -> None:
    plain = plain_hashes_of(prose(1), TABLE)
    twice = [Candidate("same", "web", True, content_hash(plain), None) for _ in range(3)]
    config = DedupConfig(fuzzy=False)
    verdicts = settle(twice, find_components(twice, config), {}, config)
    assert verdicts.kept.tolist() == [0, 0, 0]
    assert verdicts.exact.all()


def test_a_bucket_of_thousands_of_unlike_documents_stays_cheap() -> None:
    count = 3000
    bands = np.zeros(14, np.uint64).tobytes()
    candidates = [Candidate(f"{n:05d}", "web", True, n.to_bytes(16, "big"), bands) for n in range(1, count + 1)]
    grams = {n: np.arange(10 * n, 10 * n + 10, dtype=np.uint64) for n in range(count)}
    verdicts = settle(candidates, find_components(candidates, DedupConfig()), grams, DedupConfig())
    assert (verdicts.kept == np.arange(count)).all()
    assert verdicts.components == 1
    assert verdicts.uncompared == count - 64


@pytest.mark.parametrize("field", [{"containment": 0.0}, {"n_gram": 0}, {"priority": ("a", "a")}])
def test_wrong_settings_are_refused(field: dict[str, object]) -> None:
    with pytest.raises(ValueError) as error:
        DedupConfig(**field)  # type: ignore[arg-type]
    assert f"DedupConfig.{next(iter(field))}" in str(error.value)
