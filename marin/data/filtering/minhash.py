"""MinHash of word shingles, kept as LSH band keys.

A shingle is mixed to 64 bits, whose upper half goes through linear permutations of 32 bits (a x + b with odd a: Broder
et al. 2000), which processors do many at a time. Their numbers are drawn from SplitMix64, so the family is the same on
every machine and with every library version.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from marin.data.filtering.config import MinHashConfig
from marin.data.filtering.words import mix, n_gram_hashes

_ROOM = 1 << 16
"""Values at once, of one hash function for many shingles or of several for few: as many as stay in the cache."""

_ENCODED = 1 << 20
"""Characters of a long text that are encoded at once."""

_SPLITMIX_STEP = 0x9E3779B97F4A7C15


def shingles(plain_words: NDArray[np.uint64], size: int) -> NDArray[np.uint64]:
    """Distinct hashes of the shingles of a text; a text with fewer words is one shingle, one without words has none."""
    return np.unique(_grams(plain_words, size))


def _grams(plain_words: NDArray[np.uint64], size: int) -> NDArray[np.uint64]:
    """Hashes of the shingles of a text, copies included."""
    if 0 < len(plain_words) < size:
        # The length is mixed in, so that a short text never equals a shingle of a longer one.
        whole = n_gram_hashes(plain_words, len(plain_words))
        return mix(whole ^ np.uint64(len(plain_words)))
    return n_gram_hashes(plain_words, size)


def band_keys(plain_words: NDArray[np.uint64], config: MinHashConfig) -> NDArray[np.uint64] | None:
    """One 64-bit key per band; two texts are candidates when any of their keys at the same place are equal.

    None for a text without words: such texts match nothing.
    """
    return band_keys_of_all([plain_words], config)[0]


def band_keys_of_all(texts: Sequence[NDArray[np.uint64]], config: MinHashConfig) -> list[NDArray[np.uint64] | None]:
    """`band_keys` of each text."""
    worded = [at for at, plain_words in enumerate(texts) if len(plain_words)]
    # One array for all texts; the shingles that reach over the end of one are passed over.
    grams = n_gram_hashes(np.concatenate(texts), config.shingle) if worded else None
    ends = np.cumsum(list(map(len, texts))).tolist()

    def shingles_of(at: int) -> NDArray[np.uint64]:
        size = len(texts[at])
        if grams is None or size < config.shingle:
            return _grams(texts[at], config.shingle)
        return grams[ends[at] - size : ends[at] - config.shingle + 1]

    found: list[NDArray[np.uint64] | None] = [None] * len(texts)
    if not worded:
        return found
    least = _least([shingles_of(at) for at in worded], config)
    keys = np.zeros((config.bands, len(worded)), np.uint64)
    with np.errstate(over="ignore"):
        for row in np.moveaxis(least.reshape(config.bands, config.rows, len(worded)), 1, 0):
            keys = mix(keys + row.astype(np.uint64) + np.uint64(_SPLITMIX_STEP))
    keys = np.ascontiguousarray(keys.T)
    for at, of_text in zip(worded, keys, strict=True):
        found[at] = of_text
    return found


def _least(texts: Sequence[NDArray[np.uint64]], config: MinHashConfig) -> NDArray[np.uint32]:
    """The least value of every hash function over the shingles of each text, a row a function; copies change nothing.

    The shingles of all texts lie in one row, so that short texts cost no more calls than long ones.
    """
    factors, terms = _family(config.bands * config.rows, config.seed)
    numbers = (np.concatenate(texts) >> np.uint64(32)).astype(np.uint32)
    starts = np.cumsum([0, *map(len, texts[:-1])])
    least = np.full((len(factors), len(texts)), np.iinfo(np.uint32).max, np.uint32)
    for begin in range(0, len(numbers), _ROOM):
        block = numbers[begin : begin + _ROOM]
        first = int(np.searchsorted(starts, begin, side="right")) - 1
        last = int(np.searchsorted(starts, begin + len(block)))
        bounds = np.maximum(0, starts[first:last] - begin)
        height = _ROOM // len(block)
        room = np.empty((height, len(block)), np.uint32)
        for row in range(0, len(factors), height):
            some = factors[row : row + height]
            values = room[: len(some)]
            np.multiply(block, some, out=values)
            np.add(values, terms[row : row + height], out=values)
            here = least[row : row + height, first:last]
            np.minimum(here, np.minimum.reduceat(values, bounds, axis=1), out=here)
    return least


def content_hash(plain_words: NDArray[np.uint64], rest: str = "") -> bytes | None:
    """16 bytes that are equal exactly for texts of the same plain words in the same order; None without words.

    Args:
        plain_words: hashes of the words.
        rest: what follows the words in a text that is too long to be split; compared sign by sign.
    """
    if not len(plain_words):
        return None
    digest = hashlib.blake2b(plain_words.astype("<u8").tobytes(), digest_size=16)
    for start in range(0, len(rest), _ENCODED):
        digest.update(rest[start : start + _ENCODED].encode("utf-8", "replace"))
    return digest.digest()


@functools.cache
def _family(count: int, seed: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Odd factors and terms of the hash functions, as columns."""
    with np.errstate(over="ignore"):
        steps = np.arange(1, 2 * count + 1, dtype=np.uint64) * np.uint64(_SPLITMIX_STEP)
        numbers = (mix(steps + np.uint64(seed % 2**64)) >> np.uint64(32)).astype(np.uint32)
    return (numbers[:count] | np.uint32(1))[:, None], numbers[count:, None]
