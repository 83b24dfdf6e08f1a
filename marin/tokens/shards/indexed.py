"""Megatron-compatible indexed token files.

``.bin`` holds the ids of all sequences back to back. ``.idx`` holds, little-endian: the magic ``MMIDIDX\\0\\0``, the
version (uint64, 1), a dtype code (uint8), the number of sequences and of document entries (uint64 each), then the
sequence lengths (int32), their byte offsets in ``.bin`` (int64), and the document index (int64): document ``d`` is the
sequences ``[index[d], index[d + 1])``. Here every document is one sequence.
"""

from __future__ import annotations

import bisect
import mmap
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from marin.execution import StepError
from marin.tokens.shards.blocks import BlockChecksums, CheckedBlocks, CorruptBlock, decode_checksums

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
HEADER = struct.Struct("<9sQBQQ")
DTYPES: dict[int, str] = {
    1: "uint8",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "float64",
    7: "float32",
    8: "uint16",
}
CODES = {name: code for code, name in DTYPES.items()}

Ids = npt.NDArray[Any]
Offsets = npt.NDArray[np.int64]


def dtype_for(vocab_size: int) -> str:
    """The narrowest id type of the format that holds ``vocab_size`` entries: ``uint16`` or ``int32``."""
    return "uint16" if vocab_size <= 1 << 16 else "int32"


class IndexWriter:
    """Collects the lengths of the documents of one ``.bin`` and makes its ``.idx``."""

    def __init__(self, dtype: str) -> None:
        self._dtype = dtype
        self._lengths: list[int] = []

    def add(self, length: int) -> None:
        """One more document of ``length`` tokens."""
        self._lengths.append(length)

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Tokens of each document so far."""
        return np.asarray(self._lengths, dtype=np.int64)

    def to_bytes(self) -> bytes:
        """The content of the ``.idx`` file."""
        lengths = self.lengths
        if lengths.size and int(lengths.max()) > np.iinfo(np.int32).max:
            raise ValueError("a document has more than 2**31 - 1 tokens, which the index cannot hold")
        pointers = np.zeros(lengths.size, dtype="<i8")
        np.cumsum(lengths[:-1] * np.dtype(self._dtype).itemsize, out=pointers[1:])
        header = HEADER.pack(MAGIC, VERSION, CODES[self._dtype], lengths.size, lengths.size + 1)
        documents = np.arange(lengths.size + 1, dtype="<i8")
        return header + lengths.astype("<i4").tobytes() + pointers.tobytes() + documents.tobytes()


class CorruptIndex(ValueError):
    """An ``.idx`` or ``.bin`` file that is not what the format says."""


@dataclass(frozen=True)
class IndexHeader:
    """The header of an ``.idx`` file."""

    dtype: str
    sequences: int
    entries: int

    @property
    def pointers_at(self) -> int:
        """Where the byte offsets begin in the file."""
        return HEADER.size + 4 * self.sequences

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return HEADER.size + 12 * self.sequences + 8 * self.entries


def read_header(data: bytes, file_size: int, name: str) -> IndexHeader:
    """The header of an ``.idx`` file of ``file_size`` bytes.

    Raises:
        CorruptIndex: it is not a token index, or was cut; names the file.
    """
    if len(data) < HEADER.size:
        raise CorruptIndex(f"{name} has {len(data)} bytes, too few for a token index")
    magic, version, code, sequences, entries = HEADER.unpack(data[: HEADER.size])
    if magic != MAGIC or version != VERSION or code not in DTYPES:
        raise CorruptIndex(f"{name} is not a token index of version {VERSION} (begins {bytes(data[:9])!r})")
    header = IndexHeader(DTYPES[code], sequences, entries)
    if file_size != header.size or entries < 1:
        raise CorruptIndex(f"{name} has {file_size} bytes, its header asks for {header.size}; it was cut or damaged")
    return header


class TokenSource(Protocol):
    """Documents of one shard as ids back to back, wherever they lie."""

    tokens: int
    documents: int

    @property
    def lengths(self) -> Ids:
        """Tokens of each document."""

    def copy_ids(self, begin: int, out: npt.NDArray[np.int64]) -> None:
        """Fill ``out`` with the ids from position ``begin`` on."""

    def starts_within(self, begin: int, end: int) -> Offsets:
        """Positions in ``[begin, end)`` at which a document begins, ascending."""

    def document_at(self, position: int) -> int:
        """Index of the document that the token at ``position`` belongs to."""


class IndexedTokens:
    """Memory-mapped documents of one ``.bin``/``.idx`` pair.

    Without checksums opening reads the header only. With them it compares the whole index, and each block of ids is
    compared when it is first copied out.

    Args:
        bin_path: the ids.
        idx_path: the index.
        checksums: the content of the ``.sums``, or None to trust both files.

    Raises:
        CorruptIndex, CorruptBlock: the files are not those of one shard.

    Attributes:
        tokens: number of tokens.
        documents: number of documents.
        ids: all ids, back to back.
    """

    def __init__(self, bin_path: Path, idx_path: Path, checksums: bytes | None = None) -> None:
        index = _map(idx_path)
        header = read_header(index[: HEADER.size], len(index), str(idx_path))
        sequences, entries, pointers_at = header.sequences, header.entries, header.pointers_at
        dtype = np.dtype(header.dtype).newbyteorder("<")
        self._lengths = np.frombuffer(index, "<i4", sequences, HEADER.size)
        self._pointers = np.frombuffer(index, "<i8", sequences, pointers_at)
        self._documents = np.frombuffer(index, "<i8", entries, pointers_at + 8 * sequences)
        self._itemsize = dtype.itemsize
        self.documents = int(entries) - 1
        self.tokens = (int(self._pointers[-1]) // self._itemsize + int(self._lengths[-1])) if sequences else 0
        data = _map(bin_path)
        if len(data) != self.tokens * self._itemsize:
            raise CorruptIndex(
                f"{bin_path} has {len(data)} bytes, its index asks for "
                f"{self.tokens * self._itemsize}; it was cut or damaged"
            )
        self.ids: Ids = np.frombuffer(data, dtype)
        self._blocks: CheckedBlocks | None = None
        if checksums is not None:
            block_bytes, of_ids, of_index = decode_checksums(checksums, str(bin_path))
            CheckedBlocks(memoryview(index), block_bytes, of_index, str(idx_path)).check(0, len(index))
            self._blocks = CheckedBlocks(memoryview(data), block_bytes, of_ids, str(bin_path))
        self._starts = _DocumentStarts(self)

    def start_of(self, document: int) -> int:
        """Position in ``ids`` where a document begins; the number of tokens for one past the last."""
        sequence = int(self._documents[document])
        return int(self._pointers[sequence]) // self._itemsize if sequence < len(self._pointers) else self.tokens

    def document(self, document: int) -> Ids:
        """The ids of one document."""
        return self.ids[self.start_of(document) : self.start_of(document + 1)]

    def copy_ids(self, begin: int, out: npt.NDArray[np.int64]) -> None:
        """Fill ``out`` with the ids from position ``begin`` on.

        Raises:
            StepError: they are not those that the tokenize step wrote.
        """
        if self._blocks is not None:
            try:
                self._blocks.check(begin * self._itemsize, (begin + len(out)) * self._itemsize)
            except CorruptBlock as error:
                raise StepError(f"{error}; redo the tokenize step") from error
        out[:] = self.ids[begin : begin + len(out)]

    @property
    def lengths(self) -> Ids:
        """Tokens of each document."""
        bounds = np.append(self._pointers // self._itemsize, self.tokens)
        return np.diff(bounds[self._documents])

    def document_at(self, position: int) -> int:
        """Index of the document that the token at ``position`` belongs to."""
        return bisect.bisect_right(self._starts, position) - 1

    def starts_within(self, begin: int, end: int) -> Offsets:
        """Positions in ``[begin, end)`` at which a document begins, ascending."""
        places = np.array([begin, end], dtype=np.int64) * self._itemsize
        low, high = np.searchsorted(self._documents[:-1], np.searchsorted(self._pointers, places)).tolist()
        starts: Offsets = self._pointers[self._documents[low:high]] // self._itemsize
        return starts


class _DocumentStarts(Sequence[int]):
    """Document starts as a sequence that bisect can search without reading all of it."""

    def __init__(self, tokens: IndexedTokens) -> None:
        self._of = tokens

    def __len__(self) -> int:
        return self._of.documents

    def __getitem__(self, index: Any) -> Any:
        return self._of.start_of(index)


def _map(path: Path) -> mmap.mmap | bytes:
    with path.open("rb") as file:
        if path.stat().st_size == 0:
            return b""
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


class TokenWriter:
    """Writes one ``.bin``, batch by batch, and keeps its index. ``stream`` is an open output file."""

    def __init__(self, stream: Any, dtype: str, vocab_size: int) -> None:
        self.index = IndexWriter(dtype)
        self.counts: npt.NDArray[np.int64] = np.zeros(vocab_size, dtype=np.int64)
        self.checksums = BlockChecksums()
        self.tokens = 0
        self._stream = stream
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._vocab_size = vocab_size

    def add(self, ids: Sequence[int] | Ids, lengths: Sequence[int]) -> None:
        """Documents of these lengths, whose ids lie back to back in ``ids``.

        Raises:
            ValueError: an id is not within the vocabulary.
        """
        if not len(ids):
            return
        values = np.asarray(ids, dtype=np.int64)
        if sum(lengths) != len(values):
            raise ValueError(f"{len(values)} ids do not fill documents of {sum(lengths)} tokens")
        if int(values.min()) < 0 or int(values.max()) >= self._vocab_size:
            raise ValueError(f"an id lies outside the vocabulary of {self._vocab_size} entries")
        data = values.astype(self._dtype).tobytes()
        self._stream.write(data)
        self.checksums.update(data)
        self.counts += np.bincount(values, minlength=self._vocab_size)
        self.tokens += len(values)
        for length in lengths:
            self.index.add(length)
