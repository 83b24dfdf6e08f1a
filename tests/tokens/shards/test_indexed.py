from __future__ import annotations

import itertools
import struct
from pathlib import Path

import numpy as np
import pytest

from marin.tokens.shards.indexed import CorruptIndex, IndexedTokens, IndexWriter, TokenWriter, dtype_for


def read_by_description(bin_bytes: bytes, idx: bytes) -> list[list[int]]:
    """Documents of an indexed token file, read field by field as the format describes them, without numpy."""
    assert idx[:9] == b"MMIDIDX\x00\x00"
    assert struct.unpack_from("<Q", idx, 9) == (1,)
    (code,) = struct.unpack_from("<B", idx, 17)
    letter, width = {4: ("i", 4), 8: ("H", 2)}[code]
    sequences, entries = struct.unpack_from("<QQ", idx, 18)
    sizes = struct.unpack_from(f"<{sequences}i", idx, 34)
    pointers = struct.unpack_from(f"<{sequences}q", idx, 34 + 4 * sequences)
    documents = struct.unpack_from(f"<{entries}q", idx, 34 + 12 * sequences)
    assert len(idx) == 34 + 12 * sequences + 8 * entries
    read = [
        list(struct.unpack_from(f"<{size}{letter}", bin_bytes, pointer))
        for size, pointer in zip(sizes, pointers, strict=True)
    ]
    assert sum(sizes) * width == len(bin_bytes)
    return [
        [token for sequence in read[begin:end] for token in sequence] for begin, end in itertools.pairwise(documents)
    ]


def write(folder: Path, documents: list[list[int]], vocab_size: int) -> tuple[Path, Path]:
    bin_path, idx_path = folder / "x.bin", folder / "x.idx"
    with bin_path.open("wb") as stream:
        writer = TokenWriter(stream, dtype_for(vocab_size), vocab_size)
        for document in documents:
            writer.add(document, [len(document)])
    idx_path.write_bytes(writer.index.to_bytes())
    return bin_path, idx_path


@pytest.mark.parametrize(("vocab_size", "width"), [(65_536, 2), (65_537, 4), (128_256, 4)])
def test_a_reader_written_from_the_description_reads_the_documents_back(tmp_path: Path, vocab_size: int, width: int):
    generator = np.random.default_rng(vocab_size)
    documents = [generator.integers(0, vocab_size, size).tolist() for size in (1, 5, 300, 2)]
    documents.append([vocab_size - 1, 0])
    bin_path, idx_path = write(tmp_path, documents, vocab_size)
    assert read_by_description(bin_path.read_bytes(), idx_path.read_bytes()) == documents
    assert bin_path.stat().st_size == width * sum(len(document) for document in documents)
    indexed = IndexedTokens(bin_path, idx_path)
    assert [indexed.document(index).tolist() for index in range(indexed.documents)] == documents
    assert indexed.ids.tolist() == [token for document in documents for token in document]


def test_document_starts_within_any_window_are_those_of_the_lengths(tmp_path: Path):
    documents = [[1] * length for length in (3, 1, 7, 2, 2, 9)]
    indexed = IndexedTokens(*write(tmp_path, documents, 100))
    starts = [0, 3, 4, 11, 13, 15]
    for begin in range(25):
        for end in range(begin, 25):
            assert indexed.starts_within(begin, end).tolist() == [start for start in starts if begin <= start < end]
    assert [indexed.document_at(position) for position in (0, 2, 3, 4, 10, 11, 23)] == [0, 0, 1, 2, 2, 3, 5]


def test_a_document_of_several_sequences_starts_once(tmp_path: Path):
    tokens = np.arange(10, dtype="<u2")
    (tmp_path / "x.bin").write_bytes(tokens.tobytes())
    header = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, 4, 4)
    body = np.array([2, 3, 1, 4], "<i4").tobytes() + np.array([0, 4, 10, 12], "<i8").tobytes()
    (tmp_path / "x.idx").write_bytes(header + body + np.array([0, 2, 2, 4], "<i8").tobytes())
    indexed = IndexedTokens(tmp_path / "x.bin", tmp_path / "x.idx")
    assert [indexed.document(index).tolist() for index in range(3)] == [[0, 1, 2, 3, 4], [], [5, 6, 7, 8, 9]]
    assert set(indexed.starts_within(0, 10).tolist()) == {0, 5}


def test_no_documents_make_an_empty_pair(tmp_path: Path):
    bin_path, idx_path = write(tmp_path, [], 100)
    indexed = IndexedTokens(bin_path, idx_path)
    assert (indexed.tokens, indexed.documents, indexed.starts_within(0, 5).tolist()) == (0, 0, [])
    assert read_by_description(bin_path.read_bytes(), idx_path.read_bytes()) == []


def test_cut_and_foreign_files_are_refused_by_name(tmp_path: Path):
    bin_path, idx_path = write(tmp_path, [[1, 2, 3], [4]], 100)
    whole_bin, whole_idx = bin_path.read_bytes(), idx_path.read_bytes()
    for bin_bytes, idx_bytes, text in (
        (whole_bin[:-2], whole_idx, "x.bin has 6 bytes, its index asks for 8"),
        (whole_bin, whole_idx[:-8], "x.idx has 74 bytes, its header asks for 82"),
        (whole_bin, b"TNTIDX" + whole_idx[6:], "x.idx is not a token index"),
        (whole_bin, b"", "x.idx has 0 bytes, too few"),
    ):
        bin_path.write_bytes(bin_bytes)
        idx_path.write_bytes(idx_bytes)
        with pytest.raises(CorruptIndex, match=text):
            IndexedTokens(bin_path, idx_path)


def test_an_id_beyond_the_vocabulary_is_never_wrapped(tmp_path: Path):
    with (tmp_path / "x.bin").open("wb") as stream:
        writer = TokenWriter(stream, "uint16", 100)
        with pytest.raises(ValueError, match="outside the vocabulary of 100"):
            writer.add([1, 100], [2])
        with pytest.raises(ValueError, match="do not fill"):
            writer.add([1, 2], [1])


def test_index_writer_sums_lengths_beyond_32_bits():
    writer = IndexWriter("int32")
    for length in (2**31 - 1, 2**31 - 1, 5):
        writer.add(length)
    idx = writer.to_bytes()
    assert struct.unpack_from("<3q", idx, 34 + 12) == (0, 4 * (2**31 - 1), 8 * (2**31 - 1))
    writer.add(2**31)
    with pytest.raises(ValueError, match="more than 2\\*\\*31 - 1"):
        writer.to_bytes()
