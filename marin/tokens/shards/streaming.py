"""Token shards that are read from an object store a block at a time, through a bounded cache on the local disk.

Blocks are checked against the checksums that the tokenize step wrote, when they arrive and when they come from the
cache. Several processes of a machine may share one cache folder: a block appears whole, and one that another process
has removed is fetched again.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
import time
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from marin.execution import StepError
from marin.execution.artifact import FileInfo
from marin.storage import Store
from marin.tokens.shards.blocks import CorruptBlock, decode_checksums
from marin.tokens.shards.indexed import HEADER, CorruptIndex, Ids, Offsets, read_header

SCAN_PART = 32
"""The folder is looked through each time this part of what it may hold has been added."""
KEPT_AFTER = 0.8
"""Part of the bound that is left after old blocks were removed."""

UNFINISHED_SECONDS = 3600
"""A block that is being written is left alone so long; after that its process is gone."""


class BlockCache:
    """Blocks of objects as files of one folder, the least recently used removed beyond a bound.

    Args:
        folder: made when it is missing.
        most_bytes: what the folder may hold; exceeded by at most a thirty-second part for each process that shares it.

    Attributes:
        fetched_bytes: bytes read from stores so far.
        fetched_blocks: blocks read from stores.
        found_blocks: blocks that were in the folder.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self._most_bytes = most_bytes
        self._added: int | None = None
        self._lock = threading.Lock()
        self.fetched_bytes = self.fetched_blocks = self.found_blocks = 0

    @classmethod
    def of_this_machine(cls, most_bytes: int) -> BlockCache:
        """The cache that all processes of this user share."""
        return cls(Path(tempfile.gettempdir()) / f"marin-cache-{os.getuid()}" / "blocks", most_bytes)

    def __reduce__(self) -> tuple[type[BlockCache], tuple[Path, int]]:
        return BlockCache, (self._folder, self._most_bytes)

    def block(self, store: Store, file: FileInfo, number: int, size: int, checksum: int) -> bytes:
        """A block of a file.

        Args:
            store: where the file lies.
            file: the file.
            number: of the block.
            size: bytes of every block but the last.
            checksum: CRC-32 of the block.

        Raises:
            StepError: the store's bytes are not those that were written, even when asked again.
        """
        path = self._folder / f"{file.sha256}-{size}-{number}"
        with contextlib.suppress(FileNotFoundError):
            data = path.read_bytes()
            if zlib.crc32(data) == checksum:
                os.utime(path)
                with self._lock:
                    self.found_blocks += 1
                return data
        begin = number * size
        end = min(file.size, begin + size)
        for _ in range(2):
            data = store.read_range(file.key, begin, end)
            with self._lock:
                self.fetched_blocks += 1
                self.fetched_bytes += len(data)
            if len(data) == end - begin and zlib.crc32(data) == checksum:
                self._keep(path, data)
                return data
        raise StepError(
            f"bytes {begin} to {end} of {store.url_of(file.key)} are not those that the tokenize step wrote; redo it"
        )

    def _keep(self, path: Path, data: bytes) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._lock:
            scan = self._added is None or self._added + len(data) > self._most_bytes // SCAN_PART
            self._added = 0 if scan or self._added is None else self._added + len(data)
        if scan:
            self._make_room(len(data))
        with tempfile.NamedTemporaryFile(dir=self._folder, prefix=".", delete=False) as partial:
            partial.write(data)
        os.replace(partial.name, path)

    def _make_room(self, wanted: int) -> None:
        found: list[tuple[float, int, str]] = []
        fresh = time.time() - UNFINISHED_SECONDS
        for entry in os.scandir(self._folder):
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat()
                if not entry.name.startswith(".") or status.st_mtime < fresh:
                    found.append((status.st_mtime, status.st_size, entry.path))
        held = sum(size for _, size, _ in found)
        if held + wanted <= self._most_bytes:
            return
        for _, size, path in sorted(found):
            if held + wanted <= self._most_bytes * KEPT_AFTER:
                return
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            held -= size


class BlockFile:
    """One file of a store, read through a cache.

    Args:
        cache: the cache.
        store: where the file lies.
        file: the file.
        block_bytes: bytes of a block.
        checksums: CRC-32 of each block.

    Raises:
        CorruptBlock: the checksums are not of so many blocks as the file has.
    """

    def __init__(
        self, cache: BlockCache, store: Store, file: FileInfo, block_bytes: int, checksums: npt.NDArray[np.uint32]
    ) -> None:
        if -(-file.size // block_bytes) != len(checksums):
            raise CorruptBlock(f"{file.name} has {file.size} bytes, its checksums are of {len(checksums)} blocks")
        self._cache, self._store, self._file = cache, store, file
        self._block_bytes = block_bytes
        self._checksums = checksums

    def read(self, begin: int, end: int) -> bytes:
        """The bytes from ``begin`` up to ``end``."""
        size = self._block_bytes
        first = begin // size
        parts = [
            self._cache.block(self._store, self._file, number, size, int(self._checksums[number]))
            for number in range(first, -(-end // size))
        ]
        return b"".join(parts)[begin - first * size : end - first * size]


class StreamedTokens:
    """Documents of one shard in an object store; see :class:`marin.tokens.shards.indexed.TokenSource`.

    Its index is read whole when it is first needed, its ids a block at a time.

    Args:
        cache: where blocks are kept.
        store: where the files lie.
        ids: the ``.bin``.
        index: the ``.idx``.
        checksums: the content of the ``.sums``.

    Raises:
        CorruptIndex, CorruptBlock: the files are not those of one shard.
    """

    def __init__(self, cache: BlockCache, store: Store, ids: FileInfo, index: FileInfo, checksums: bytes) -> None:
        block_bytes, of_ids, of_index = decode_checksums(checksums, ids.name)
        self._ids = BlockFile(cache, store, ids, block_bytes, of_ids)
        self._index = BlockFile(cache, store, index, block_bytes, of_index)
        self._header = read_header(self._index.read(0, min(index.size, HEADER.size)), index.size, index.name)
        self._dtype = np.dtype(self._header.dtype).newbyteorder("<")
        if self._header.entries != self._header.sequences + 1:
            raise CorruptIndex(f"{index.name} has documents of several sequences, which the tokenize step never writes")
        self.tokens = ids.size // self._dtype.itemsize
        self.documents = self._header.sequences
        self._starts: Offsets | None = None

    @property
    def lengths(self) -> Ids:
        """Tokens of each document."""
        return np.diff(self._document_starts(), append=self.tokens)

    def copy_ids(self, begin: int, out: npt.NDArray[np.int64]) -> None:
        """Fill ``out`` with the ids from position ``begin`` on."""
        width = self._dtype.itemsize
        out[:] = np.frombuffer(self._ids.read(begin * width, (begin + len(out)) * width), self._dtype)

    def starts_within(self, begin: int, end: int) -> Offsets:
        """Positions in ``[begin, end)`` at which a document begins, ascending."""
        starts = self._document_starts()
        low, high = np.searchsorted(starts, [begin, end]).tolist()
        return starts[low:high]

    def document_at(self, position: int) -> int:
        """Index of the document that the token at ``position`` belongs to."""
        return int(np.searchsorted(self._document_starts(), position, side="right")) - 1

    def _document_starts(self) -> Offsets:
        if self._starts is None:
            first = self._header.pointers_at
            pointers = np.frombuffer(self._index.read(first, first + 8 * self.documents), "<i8")
            self._starts = pointers // self._dtype.itemsize
        return self._starts
