"""Repeated spans of words, against brute force."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from marin.data.dedup import span_grams
from marin.data.dedup.config import DedupConfig
from marin.data.dedup.span_matches import Grams, Repeats, originals, repeated_hashes, segments
from marin.data.dedup.span_words import anchors_of, cut_range, placed_words, window_hashes
from marin.data.dedup.spans_config import SpanConfig
from marin.data.dedup.steps import repeated_spans
from marin.data.documents.artifacts import Attributes
from marin.data.filtering.words import WordTable, n_gram_hashes, plain_hashes_of, word_hash
from marin.execution import materialise
from tests.data.dedup.marked import Marks, mark
from tests.data.dedup.texts import prose
from tests.data.pages import Page, PageSet, spread, write_pages

TABLE = WordTable()


def find(
    prefix: Path,
    sets: Sequence[PageSet],
    config: SpanConfig,
    dedup: DedupConfig = DedupConfig(),
    *,
    dropped: tuple[str, ...] = (),
    failing: tuple[str, ...] = (),
) -> tuple[dict[str, dict[str, Any]], Attributes]:
    """Rows by id, and the attributes. Documents that are dropped are duplicates, failing ones fail the filters."""
    pages = [write_pages(one) for one in sets]
    signals = [mark([one], Marks(failing)) for one in pages] if failing else ()
    spans = repeated_spans(pages, mark(pages, Marks(dropped)), config, signals, dedup)
    found = materialise(spans, prefix=str(prefix))
    rows = [row for shard in found.shards for row in pq.read_table(found.local(shard.name)).to_pylist()]
    texts = {page.id: page.text for one in sets for shard in one.shards for page in shard}
    for row in rows:
        check(row, texts)
    return {row["id"]: row for row in rows}, found


def plain(text: str) -> list[str]:
    return ["".join(filter(str.isalnum, word)).lower() for word in text.split() if any(map(str.isalnum, word))]


def check(row: dict[str, Any], texts: dict[str, str]) -> None:
    """Spans are in order and disjoint, and each holds the words of the place that is named."""
    assert row["reason"] is None
    assert row["cut_characters"] == sum(row["ends"]) - sum(row["starts"])
    at = 0
    for start, end, original in zip(row["starts"], row["ends"], row["originals"], strict=True):
        assert at <= start < end <= len(texts[row["id"]])
        at = end
        document, _, place = original.partition(":")
        first, _, after = place.partition("-")
        assert plain(texts[row["id"]][start:end]) == plain(texts[document][int(first) : int(after)])


def brute(documents: Sequence[tuple[Any, list[str]]], size: int) -> list[set[int]]:
    """The words to cut from each document; documents come with what they are ordered by."""
    first: dict[tuple[str, ...], tuple[Any, int]] = {}
    for order, words in sorted(documents):
        for at in range(len(words) - size + 1):
            first.setdefault(tuple(words[at : at + size]), (order, at))
    cut: list[set[int]] = []
    for order, words in documents:
        gone: set[int] = set()
        for at in range(len(words) - size + 1):
            of, place = first[tuple(words[at : at + size])]
            if of != order or at >= place + size:
                gone.update(range(at, at + size))
        cut.append(gone)
    return cut


def left_words(page: Page, row: dict[str, Any]) -> list[str]:
    text = page.text
    for start, end in zip(row["starts"][::-1], row["ends"][::-1], strict=True):
        text = text[:start] + text[end:]
    return plain(text)


def random_pages(draw: random.Random, count: int) -> list[Page]:
    """Documents made of few phrases, so that long spans recur in every way, also within one document."""
    phrases = [[f"w{draw.randint(0, 30)}" for _ in range(draw.randint(1, 12))] for _ in range(12)]
    pages = []
    for n in range(count):
        words = [word for _ in range(draw.randint(0, 9)) for word in draw.choice(phrases)]
        if draw.random() < 0.2:
            words += ["again"] * draw.randint(0, 20)
        text = " ".join(
            word.upper() + draw.choice(["", ",", ".", " --"]) if draw.random() < 0.3 else word for word in words
        )
        pages.append(Page(text, id=f"{draw.randint(0, 99):02d}-{n}"))
    return pages


@pytest.mark.parametrize("seed", range(5))
def test_what_goes_is_what_brute_force_finds_for_any_shards_and_parts(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    size = draw.choice([2, 3, 5, 8])
    some, others = random_pages(draw, 25), random_pages(draw, 15)
    others = [Page(page.text, id=f"x{page.id}") for page in others]
    documents = [((1, page.id), plain(page.text)) for page in some] + [
        ((0, page.id), plain(page.text)) for page in others
    ]
    expected = brute(documents, size)
    assert any(expected)
    results = []
    for run, (shards, part) in enumerate([(1, 10**9), (3, 3_000), (2, 1_500)]):
        dealt = (some, others) if run != 1 else (some[::-1], others[::-1])
        sets = [PageSet("web", spread(dealt[0], shards)), PageSet("books", spread(dealt[1], shards))]
        config, dedup = SpanConfig(size, partition_bytes=part), DedupConfig(priority=("books", "web"))
        rows, found = find(tmp_path / str(run), sets if run != 2 else sets[::-1], config, dedup)
        for page, gone, (_, words) in zip([*some, *others], expected, documents, strict=True):
            assert left_words(page, rows[page.id]) == [word for at, word in enumerate(words) if at not in gone]
        results.append((rows, found.read_json("report.json")))
    assert results[0] == results[1] == results[2]
    assert results[0][1]["unconfirmed_spans"] == 0


def test_the_same_shards_give_the_same_bytes_for_any_number_of_parts(tmp_path: Path) -> None:
    sets = [PageSet("web", spread(random_pages(random.Random(77), 40), 4))]
    files = []
    for part in (10**9, 3_000, 1_500):
        _, found = find(tmp_path / str(part), sets, SpanConfig(4, partition_bytes=part))
        names = [*(shard.name for shard in found.shards), "report.json"]
        files.append([Path(found.local(name)).read_bytes() for name in names])
    assert files[0] == files[1] == files[2]


SHARED = prose(500, 6)


def holding(name: str, seed: int, text: str = SHARED) -> Page:
    return Page(f"{prose(seed, 4)}\n\nbefore{seed}\n\n{text}\n\nbehind{seed}\n\n{prose(seed + 1000, 4)}", id=name)


def test_the_preferred_source_keeps_the_text_then_the_least_id(tmp_path: Path) -> None:
    web = [holding("a", 1), holding("b", 2)]
    books = [holding("y", 3), holding("x", 4)]
    sets = [PageSet("web", spread(web, 2)), PageSet("books", spread(books, 1))]
    rows, found = find(tmp_path / "1", sets, SpanConfig(), DedupConfig(priority=("books", "web")))
    assert {name for name, row in rows.items() if not row["starts"]} == {"x"}
    start = books[1].text.index(SHARED)
    assert rows["a"]["originals"] == [f"x:{start}-{start + len(SHARED)}"]
    (first,), (last,) = rows["a"]["starts"], rows["a"]["ends"]
    assert web[0].text[first:last].strip() == SHARED
    assert web[0].text[:first] + web[0].text[last:] == f"{prose(1, 4)}\n\nbefore1\n\nbehind1\n\n{prose(1001, 4)}"
    (top,) = found.read_json("report.json")["top"]
    assert (top["original"], top["repeats"]) == (rows["a"]["originals"][0], 3)
    assert top["text"] == SHARED[:300]
    rows, _ = find(tmp_path / "2", sets, SpanConfig())
    assert {name for name, row in rows.items() if not row["starts"]} == {"a"}


def test_nothing_is_cut_from_a_protected_source_and_what_it_holds_goes_elsewhere(tmp_path: Path) -> None:
    sets = [PageSet("web", ((holding("a", 1),),)), PageSet("gold", ((holding("y", 3), holding("z", 4)),))]
    rows, _ = find(tmp_path, sets, SpanConfig(), DedupConfig(priority=("web",), protected=("gold",)))
    assert {name for name, row in rows.items() if row["starts"]} == {"a"}


def test_documents_that_are_dropped_anyway_take_no_part(tmp_path: Path) -> None:
    sets = [PageSet("web", spread([Page(SHARED, id="a"), holding("b", 2), holding("c", 3), holding("d", 4)], 2))]
    rows, found = find(tmp_path / "1", sets, SpanConfig(), dropped=("a",), failing=("b",))
    assert {name for name, row in rows.items() if row["starts"]} == {"d"}
    assert rows["d"]["originals"][0].startswith("c:")
    assert found.read_json("report.json")["documents_compared"] == 2
    rows, _ = find(tmp_path / "2", sets, SpanConfig(), dropped=("a",))
    assert {name for name, row in rows.items() if row["starts"]} == {"c", "d"}


def test_a_text_that_repeats_itself_keeps_its_first_turn(tmp_path: Path) -> None:
    page = Page(f"{SHARED}\n\n{prose(9, 4)}\n\n{SHARED}\n\n{SHARED}", id="a")
    beat = Page("tick tock " * 400, id="b")
    rows, _ = find(tmp_path, [PageSet("web", ((page, beat),))], SpanConfig())
    assert left_words(page, rows["a"]) == plain(f"{SHARED} {prose(9, 4)}")
    assert 50 <= len(left_words(beat, rows["b"])) <= 52


def test_a_span_of_one_word_too_few_stays(tmp_path: Path) -> None:
    words = " ".join(f"w{n}" for n in range(50))
    pages = [Page(f"one {words} two", id="a"), Page(f"three {words} four", id="b")]
    rows, _ = find(tmp_path / "1", [PageSet("web", (tuple(pages),))], SpanConfig(50))
    assert left_words(pages[1], rows["b"]) == ["three", "four"]
    rows, _ = find(tmp_path / "2", [PageSet("web", (tuple(pages),))], SpanConfig(51))
    assert not rows["b"]["starts"]


def test_texts_without_spaces_between_words_are_compared_too(tmp_path: Path) -> None:
    text = "山谷里的木匠在雨前修好了磨坊的门然后把灯笼挂在桥边等候早晨的船只和带着信件回来的水手们"
    pages = [Page(f"甲{text}乙", id="a"), Page(f"丙丁{text}戊", id="b")]
    rows, _ = find(tmp_path, [PageSet("web", (tuple(pages),))], SpanConfig(20))
    assert pages[1].text[rows["b"]["starts"][0] : rows["b"]["ends"][0]] == text


def test_hashes_that_collide_lead_to_no_cut_that_words_do_not_confirm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def weak(text: str, table: WordTable) -> NDArray[np.uint64]:
        return plain_hashes_of(text, table) % np.uint64(5) + np.uint64(1)

    monkeypatch.setattr(span_grams, "plain_hashes_of", weak)
    pages = random_pages(random.Random(3), 30)
    rows, found = find(tmp_path, [PageSet("web", spread(pages, 3))], SpanConfig(3))
    assert found.read_json("report.json")["unconfirmed_spans"] > 0
    assert any(row["starts"] for row in rows.values())


def test_empty_and_short_documents_are_no_trouble(tmp_path: Path) -> None:
    pages = (Page("", id="a"), Page("one", id="b"), Page("...", id="c"))
    rows, found = find(tmp_path / "1", [PageSet("web", (pages,))], SpanConfig())
    assert not any(row["starts"] for row in rows.values())
    assert found.kind == "spans"
    _, found = find(tmp_path / "2", [PageSet("web", ())], SpanConfig())
    assert found.rows == 0


# --- the parts ---

WORDS = st.lists(st.integers(1, 4), max_size=60)


def hashed(words: Sequence[int]) -> NDArray[np.uint64]:
    return np.array([word_hash(str(word)) for word in words], np.uint64)


@given(WORDS, st.integers(1, 70))
def test_long_n_grams_hash_as_those_of_words_do(words: list[int], size: int) -> None:
    assert window_hashes(hashed(words), size).tolist() == n_gram_hashes(hashed(words), size).tolist()


@settings(max_examples=300, deadline=None)
@given(WORDS, WORDS, st.integers(2, 9))
def test_equal_n_grams_have_equal_anchors_and_a_repeated_one_has_two(
    one: list[int], other: list[int], size: int
) -> None:
    seen: dict[tuple[int, ...], int] = {}
    places: dict[int, set[tuple[int, int]]] = {}
    repeated = set()
    for number, words in enumerate((one, other)):
        anchors = anchors_of(hashed(words), size)
        assert len(anchors.of_windows) == max(0, len(words) - size + 1)
        for at, anchor in enumerate(anchors.of_windows.tolist()):
            gram, value = tuple(words[at : at + size]), int(anchors.hashes[anchor])
            if gram in seen:
                assert seen[gram] == value
                repeated.add(value)
            seen[gram] = value
            places.setdefault(value, set()).add((number, anchor))
    assert all(len(places[value]) > 1 for value in repeated)


def test_few_n_grams_have_an_anchor_of_their_own() -> None:
    words = np.random.default_rng(0).integers(1, 2**63, 100_000, dtype=np.uint64)
    assert 0.065 < len(anchors_of(words, 50).hashes) / len(words) < 0.085


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(0, 9)), unique=True), st.integers(1, 4))
def test_the_preferred_place_is_the_least_and_overlaps_are_left_alone(
    rows: list[tuple[int, int, int]], size: int
) -> None:
    columns = np.array(rows, np.int64).reshape(-1, 3)
    found = originals(Grams(columns[:, 0].astype(np.uint64), columns[:, 1].astype(np.int32), columns[:, 2]), size)
    for row, original in zip(rows, found.tolist(), strict=True):
        least = min((other for other in rows if other[0] == row[0]), key=lambda other: other[1:])
        overlaps = least[1] == row[1] and row[2] < least[2] + size
        assert original == (-1 if overlaps else rows.index(least))


@given(st.lists(st.dictionaries(st.integers(0, 12), st.integers(1, 2)), min_size=1, max_size=4))
def test_hashes_are_repeated_when_they_occur_twice_in_all(shards: list[dict[int, int]]) -> None:
    hashes = [np.array(sorted(shard), np.uint64) for shard in shards]
    counts = [np.array([shard[key] for key in sorted(shard)], np.int64) for shard in shards]
    for shard, again in zip(shards, repeated_hashes(hashes, counts), strict=True):
        assert again.tolist() == [key for key in sorted(shard) if sum(one.get(key, 0) for one in shards) > 1]


def test_segments_follow_one_place_and_share_no_word() -> None:
    of_places = np.array([7, 8, 9, 20, 21, 40], np.int32)
    places = np.array([0, 1, 2, 3, 4, 9], np.int32)
    column = np.zeros(6, np.int32)
    found = segments(Repeats(column, places, column, column, of_places), 3)
    assert [(one.first, one.after, one.cut, one.of_first) for one in found] == [
        (0, 5, 0, 7),
        (3, 7, 5, 20),
        (9, 12, 9, 40),
    ]


@settings(max_examples=300, deadline=None)
@given(st.text(st.sampled_from("ab.,-'n’t12 \n\t“”山谷้ก\u0301\u3000"), max_size=40) | st.text(max_size=30))
def test_placed_words_are_those_that_are_hashed(text: str) -> None:
    placed = placed_words(text)
    assert [word_hash(word) for word in placed.words] == plain_hashes_of(text, WordTable()).tolist()
    at = 0
    for start, end in zip(placed.starts, placed.ends, strict=True):
        assert at <= start < end <= len(text)
        at = end


@pytest.mark.parametrize(
    ("text", "first", "after", "left"),
    [
        ("one two three. Four", 1, 3, "one Four"),
        ("one\n\ntwo three. Four", 1, 3, "one\n\nFour"),
        ("one two three.\n\nFour", 1, 3, "one\n\nFour"),
        ("“one two” three", 0, 2, "three"),
        ("one (two three)\n", 1, 3, "one"),
        ("one", 0, 1, ""),
        ("  1. one\n", 0, 2, ""),
        (" \n one two", 0, 1, "two"),
    ],
)
def test_one_gap_stays_where_two_would_meet(text: str, first: int, after: int, left: str) -> None:
    start, end = cut_range(placed_words(text), first, after)
    assert text[:start] + text[end:] == left


@pytest.mark.parametrize("field", [{"least_words": 1}, {"partition_bytes": 0}])
def test_wrong_settings_are_refused(field: dict[str, Any]) -> None:
    with pytest.raises(ValueError) as error:
        SpanConfig(**field)
    assert f"SpanConfig.{next(iter(field))}" in str(error.value)
