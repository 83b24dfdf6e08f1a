"""Checksums of a file by blocks, so that a part of a large object can be checked without the rest."""

from __future__ import annotations

import struct
import zlib

import numpy as np
import numpy.typing as npt

MAGIC = b"MARINSUM"
HEADER = struct.Struct("<8sQQQ")

BLOCK_BYTES = 1 << 18
"""A sequence of 4096 tokens takes 8 or 16 KiB; a request to an object store costs about as much as 256 KiB of it."""


class CorruptBlock(ValueError):
    """Bytes that are not those that were written."""


class CheckedBlocks:
    """Bytes in memory or in a map whose blocks are compared with their checksums when they are first used.

    Args:
        data: the whole file.
        block_bytes: bytes of every block but the last.
        checksums: CRC-32 of each block.
        name: of the file, for the error.

    Raises:
        CorruptBlock: the checksums are not of so many blocks as the data has.
    """

    def __init__(
        self, data: bytes | memoryview, block_bytes: int, checksums: npt.NDArray[np.uint32], name: str
    ) -> None:
        if -(-len(data) // block_bytes) != len(checksums):
            raise CorruptBlock(f"{name} has {len(data)} bytes, its checksums are of {len(checksums)} blocks")
        self._data = memoryview(data)
        self._block_bytes = block_bytes
        self._checksums = checksums
        self._checked = bytearray(len(checksums))
        self._name = name

    def check(self, begin: int, end: int) -> None:
        """Compare the blocks of the bytes from ``begin`` up to ``end`` that were not compared before.

        Raises:
            CorruptBlock: a block is not what was written; names the file and the bytes.
        """
        for number in range(begin // self._block_bytes, -(-end // self._block_bytes)):
            if self._checked[number]:
                continue
            first = number * self._block_bytes
            block = self._data[first : first + self._block_bytes]
            if zlib.crc32(block) != int(self._checksums[number]):
                raise CorruptBlock(
                    f"bytes {first} to {first + len(block)} of {self._name} are not those that were written: it was "
                    "changed or damaged"
                )
            self._checked[number] = 1


class BlockChecksums:
    """CRC-32 of each block of what goes by."""

    def __init__(self) -> None:
        self._done: list[int] = []
        self._running = 0
        self._filled = 0

    def update(self, data: bytes | memoryview) -> None:
        """More bytes."""
        view = memoryview(data)
        while len(view):
            taken = view[: BLOCK_BYTES - self._filled]
            self._running = zlib.crc32(taken, self._running)
            self._filled += len(taken)
            view = view[len(taken) :]
            if self._filled == BLOCK_BYTES:
                self._done.append(self._running)
                self._running = self._filled = 0

    def values(self) -> list[int]:
        """The checksums so far, that of an unfinished last block included."""
        return [*self._done, *([self._running] if self._filled else [])]


def encode_checksums(ids: BlockChecksums, index: bytes) -> bytes:
    """The content of the file with the checksums of a shard's ``.bin`` and ``.idx``."""
    of_index = BlockChecksums()
    of_index.update(index)
    parts = [np.asarray(sums.values(), dtype="<u4") for sums in (ids, of_index)]
    return HEADER.pack(MAGIC, BLOCK_BYTES, *(part.size for part in parts)) + b"".join(part.tobytes() for part in parts)


def decode_checksums(data: bytes, name: str) -> tuple[int, npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """(bytes of a block, checksums of the ``.bin``, checksums of the ``.idx``).

    Raises:
        CorruptBlock: this is no file of checksums, or it was cut; names it.
    """
    if len(data) < HEADER.size or data[:8] != MAGIC:
        raise CorruptBlock(f"{name} holds no checksums of token blocks")
    _, block_bytes, ids, index = HEADER.unpack(data[: HEADER.size])
    if len(data) != HEADER.size + 4 * (ids + index):
        raise CorruptBlock(f"{name} has {len(data)} bytes, which its header does not ask for; it was cut or damaged")
    values = np.frombuffer(data, "<u4", ids + index, HEADER.size)
    return block_bytes, values[:ids], values[ids:]
