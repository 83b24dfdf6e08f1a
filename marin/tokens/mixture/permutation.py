"""Keyed permutations of [0, n) that cost O(1) a lookup and no memory."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]

DOUBLE_ROUNDS = 4
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_A = np.uint64(0xBF58476D1CE4E5B9)
_MIX_B = np.uint64(0x94D049BB133111EB)


def mix64(values: U64) -> U64:
    """The finaliser of SplitMix64: a bijection of 64-bit words that spreads every bit of the input."""
    values = (values ^ (values >> np.uint64(30))) * _MIX_A
    values = (values ^ (values >> np.uint64(27))) * _MIX_B
    return values ^ (values >> np.uint64(31))


def key_of(seed: int, name: str) -> int:
    """A 64-bit key for the name, under a seed."""
    return int.from_bytes(
        hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8, person=b"marin.order").digest(), "big"
    )


def permute(indices: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64], keys: U64) -> npt.NDArray[np.int64]:
    """The place of each index under the permutation of ``[0, size)`` that its key names.

    A Feistel network over pairs (l, r) in Z_a x Z_b with a = ceil(sqrt(size)) and b = ceil(size / a), whose rounds add
    a keyed hash of one half to the other; pairs that lie outside ``[0, size)`` are sent through again (cycle walking),
    which seldom happens as a * b < size + a.

    Args:
        indices: int64, each within [0, size).
        sizes: int64, at least 1, one for each index.
        keys: uint64, one for each index.
    """
    a = np.ceil(np.sqrt(sizes.astype(np.float64))).astype(np.int64)
    a += (a * a < sizes).astype(np.int64)
    b = -(-sizes // a)
    left_size, right_size = a.astype(np.uint64), b.astype(np.uint64)
    result = indices.astype(np.uint64)
    limits = sizes.astype(np.uint64)
    pending = np.arange(result.size)
    while pending.size:
        result[pending] = _rounds(result[pending], left_size[pending], right_size[pending], keys[pending])
        pending = pending[result[pending] >= limits[pending]]
    return result.astype(np.int64)


def _rounds(values: U64, left_size: U64, right_size: U64, keys: U64) -> U64:
    left, right = values // right_size, values % right_size
    state = keys.copy()
    for _ in range(DOUBLE_ROUNDS):
        state += _GOLDEN
        left = (left + mix64(mix64(state) ^ right) % left_size) % left_size
        state += _GOLDEN
        right = (right + mix64(mix64(state) ^ left) % right_size) % right_size
    return left * right_size + right
