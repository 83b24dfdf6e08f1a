"""Documents of one key as stars, columns as arrays, and how work is dealt out; against plain loops."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.data.dedup.buckets import Entries, distinct, stars
from marin.data.dedup.candidates import deal_tasks
from marin.data.dedup.columns import (
    arrow_flags,
    arrow_numbers,
    arrow_rows,
    arrow_texts,
    floats,
    heads,
    integers,
    present,
    sizes,
    whole,
    words_of_64_bits,
)
from marin.data.dedup.config import DedupConfig
from marin.data.dedup.grams import grams_of_all, pieces_of
from marin.data.filtering.minhash import shingles
from marin.data.filtering.words import WordTable, plain_hashes_of
from tests.data.dedup.texts import prose


def entries(keys: list[tuple[int, int, int]]) -> Entries:
    """Entries of (key, document, count)."""
    table = np.array(keys, np.int64).reshape(-1, 3)
    hashes = table[:, 0].astype(np.uint64)
    return Entries(hashes, hashes % np.uint64(2), table[:, 1], table[:, 2])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30), st.just(1)), max_size=20), max_size=4))
def test_every_document_is_tied_to_the_least_of_its_bucket(lists: list[list[tuple[int, int, int]]]) -> None:
    (one, other), rest = stars([entries(keys) for keys in lists])
    expected, least, counts = set(), [], []
    for keys in lists:
        buckets: dict[int, list[int]] = defaultdict(list)
        for key, document, _ in keys:
            buckets[key].append(document)
        expected |= {(document, min(own)) for own in buckets.values() for document in own if document != min(own)}
        least += [min(own) for _, own in sorted(buckets.items())]
        counts += [len(own) for _, own in sorted(buckets.items())]
    assert list(zip(one.tolist(), other.tolist(), strict=True)) == sorted(expected)
    assert rest.least.tolist() == least
    assert rest.counts.tolist() == counts


def test_a_bucket_that_is_reduced_in_parts_ties_the_same_documents_with_one_entry_a_part() -> None:
    documents = np.random.default_rng(1).permutation(1000)
    parts = [stars([entries([(7, int(document), 1) for document in own])]) for own in np.array_split(documents, 8)]
    assert [len(rest.least) for _, rest in parts] == [1] * 8
    joined = Entries(*(np.concatenate([getattr(rest, name) for _, rest in parts]) for name in Entries.__annotations__))
    (one, other), rest = stars([joined])
    assert rest.counts.tolist() == [1000]
    tied = np.concatenate([one, *(edges[0] for edges, _ in parts)])
    centres = np.concatenate([other, *(edges[1] for edges, _ in parts)])
    assert len(tied) == 999
    assert set(centres[np.isin(tied, other, invert=True)].tolist()) <= {0, *tied.tolist()}
    assert rest.least.tolist() == [0]


def test_pairs_are_given_once_and_sorted() -> None:
    one, other = distinct(np.array([3, 1, 3, 2]), np.array([1, 0, 1, 0]))
    assert (one.tolist(), other.tolist()) == ([1, 2, 3], [0, 0, 1])


def chunked(values: list[bytes | None]) -> pa.ChunkedArray:
    """The values in chunks that are slices of longer arrays."""
    padded = pa.array([b"before", *values, b"after"], pa.binary())
    middle = len(values) // 2
    return pa.chunked_array([padded.slice(1, middle), padded.slice(1 + middle, len(values) - middle)])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.none(), st.binary(max_size=9)), max_size=12))
def test_columns_of_bytes_become_arrays(values: list[bytes | None]) -> None:
    column = chunked(values)
    assert present(column).tolist() == [value is not None for value in values]
    assert sizes(column).tolist() == [len(value or b"") for value in values]
    assert [bytes(row) for row in heads(column, 4)] == [(value or b"")[:4].ljust(4, b"\0") for value in values]
    assert whole(column).tolist() == [(value or b"").rstrip(b"\0") for value in values]


@pytest.mark.parametrize("values", [[], [b"\1" * 16, b"\2" * 16]])
def test_columns_of_equal_sizes_become_words(values: list[bytes | None]) -> None:
    expected = np.frombuffer(b"".join(value or b"" for value in values), "<u8").reshape(-1, 2)
    assert np.array_equal(words_of_64_bits(chunked(values), 2), expected)


def test_tables_are_filtered_by_flags_and_rows() -> None:
    table = pa.table({"number": list(range(11))})
    flags = np.arange(11) % 3 == 0
    assert table.filter(arrow_flags(flags)).column("number").to_pylist() == [0, 3, 6, 9]
    assert table.take(arrow_rows(np.arange(11)[::-4])).column("number").to_pylist() == [10, 6, 2]
    assert table.filter(arrow_flags(flags & False)).num_rows == table.take(arrow_rows(np.arange(0))).num_rows == 0


def test_columns_are_made_of_values_and_nulls() -> None:
    texts = ["a", None, "", "ü"]
    assert arrow_texts(texts).equals(pa.array(texts, pa.string()))
    assert arrow_texts([]).equals(pa.array([], pa.string()))
    for numbers, kind in (([1, None, 2**53 + 1], pa.int64()), ([0.5, None], pa.float64()), ([None], pa.int64())):
        assert arrow_numbers(numbers, kind).equals(pa.array(numbers, kind))


def test_columns_of_numbers_become_arrays() -> None:
    column = pa.chunked_array([pa.array([9, 1, None, 3], pa.int64()).slice(1), pa.array([], pa.int64())])
    assert integers(column).tolist() == [1, 0, 3]
    assert floats(column.cast(pa.float64()))[[0, 2]].tolist() == [1.0, 3.0]
    assert np.isnan(floats(column)[1])


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 60), st.booleans()), min_size=1, max_size=40))
def test_a_component_is_in_one_task_and_a_part_is_bounded(rows: list[tuple[int, int, bool]]) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    labels = np.array([label for label, _, _ in rows])
    sizes_of = np.array([size for _, size, _ in rows])
    tied = [False, *(rows[at][2] and rows[at][0] == rows[at - 1][0] for at in range(1, len(rows)))]
    places = np.cumsum(~np.array(tied)) - 1
    limit = 100
    tasks, parts = deal_tasks(labels, places, sizes_of, DedupConfig(n_grams_per_task=limit))
    assert all(len(set(tasks[labels == label].tolist())) == 1 for label in labels)
    assert all(len(set(parts[places == place].tolist())) == 1 for place in places)
    assert sorted(set(tasks.tolist())) == list(range(tasks.max() + 1))
    for task in set(tasks.tolist()):
        assert sorted(set(parts[tasks == task].tolist())) == list(range(parts[tasks == task].max() + 1))
        for part in set(parts[tasks == task].tolist()):
            own = (tasks == task) & (parts == part)
            # At most one document, or one run of equal places, more than the limit.
            largest = max(sizes_of[places == place].sum() for place in places[own])
            assert sizes_of[own].sum() < limit + largest


@pytest.mark.parametrize("size", [1, 3, 5])
def test_n_grams_of_many_texts_are_those_of_each(size: int) -> None:
    texts = [prose(1), "", "one", "two words", "?!", prose(2, 2), "one", "mots été naïve " * 3]
    expected = [shingles(plain_hashes_of(text, WordTable()), size) for text in texts]
    for found, one in zip(grams_of_all(texts, size), expected, strict=True):
        assert np.array_equal(found, one)


def test_a_very_long_text_is_cut_between_words() -> None:
    text = " ".join(prose(n) for n in range(1100))
    assert len(text) > 2_000_000
    assert "".join(pieces_of(text, 1000)) == text
    assert all(part[0].isspace() for part in list(pieces_of(text, 1000))[1:])
    first, found = grams_of_all(["a b c d", text], 3)
    assert len(first) == 2
    assert np.array_equal(found, shingles(plain_hashes_of(text, WordTable()), 3))
