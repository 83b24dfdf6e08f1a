from __future__ import annotations

import zlib

import numpy as np
import pytest

from marin.tokens.shards.blocks import (
    BLOCK_BYTES,
    HEADER,
    BlockChecksums,
    CorruptBlock,
    decode_checksums,
    encode_checksums,
)


@pytest.mark.parametrize("size", [0, 1, BLOCK_BYTES - 1, BLOCK_BYTES, 3 * BLOCK_BYTES + 7])
def test_checksums_are_those_of_the_blocks_however_the_bytes_arrive(size: int):
    data = np.random.default_rng(size).bytes(size)
    expected = [zlib.crc32(data[first : first + BLOCK_BYTES]) for first in range(0, size, BLOCK_BYTES)]
    for step in (1 + size // 3, 100_003, size or 1):
        sums = BlockChecksums()
        for first in range(0, size, step):
            sums.update(data[first : first + step])
        assert sums.values() == expected
    block_bytes, ids, index = decode_checksums(encode_checksums(sums, b"index"), "x.sums")
    assert (block_bytes, ids.tolist(), index.tolist()) == (BLOCK_BYTES, expected, [zlib.crc32(b"index")])


@pytest.mark.parametrize(
    ("data", "text"),
    [(b"", "holds no checksums"), (b"x" * HEADER.size, "holds no checksums"), (None, "was cut or damaged")],
)
def test_damaged_checksums_are_named(data: bytes | None, text: str):
    cut = encode_checksums(BlockChecksums(), b"index")[:-1]
    with pytest.raises(CorruptBlock, match=f"x.sums .*{text}"):
        decode_checksums(cut if data is None else data, "x.sums")
