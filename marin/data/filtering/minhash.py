"""MinHash of word shingles, kept as LSH band keys.

The hash family is multiply-shift over 64 bits (Dietzfelbinger et al. 1997) with multipliers from SplitMix64, so it is
the same on every machine and with every library version.
"""

from __future__ import annotations

import functools
import hashlib

import numpy as np
from numpy.typing import NDArray

from marin.data.filtering.config import MinHashConfig
from marin.data.filtering.words import mix, n_gram_hashes

_BLOCK = 4096
"""Shingles hashed at once: what bounds the memory of a long document."""

_SPLITMIX_STEP = 0x9E3779B97F4A7C15


def shingles(plain_words: NDArray[np.uint64], size: int) -> NDArray[np.uint64]:
    """Distinct hashes of the shingles of a text; a text with fewer words is one shingle, one without words has none."""
    if 0 < len(plain_words) < size:
        # The length is mixed in, so that a short text never equals a shingle of a longer one.
        whole = n_gram_hashes(plain_words, len(plain_words))
        return mix(whole ^ np.uint64(len(plain_words)))
    return np.unique(n_gram_hashes(plain_words, size))


def band_keys(plain_words: NDArray[np.uint64], config: MinHashConfig) -> NDArray[np.uint64] | None:
    """One 64-bit key per band; two texts are candidates when any of their keys at the same place are equal.

    None for a text without words: such texts match nothing.
    """
    grams = shingles(plain_words, config.shingle)
    if not len(grams):
        return None
    factors, terms = _family(config.bands * config.rows, config.seed)
    least = np.full(len(factors), np.iinfo(np.uint32).max, np.uint32)
    with np.errstate(over="ignore"):
        for start in range(0, len(grams), _BLOCK):
            block = grams[start : start + _BLOCK, None] * factors + terms
            np.minimum(least, (block >> np.uint64(32)).astype(np.uint32).min(axis=0), out=least)
        keys = np.zeros(config.bands, np.uint64)
        for row in least.reshape(config.bands, config.rows).T:
            keys = mix(keys + row.astype(np.uint64) + np.uint64(_SPLITMIX_STEP))
    return keys


def content_hash(plain_words: NDArray[np.uint64], rest: str = "") -> bytes | None:
    """16 bytes that are equal exactly for texts of the same plain words in the same order; None without words.

    Args:
        plain_words: hashes of the words.
        rest: what follows the words in a text that is too long to be split; compared sign by sign.
    """
    if not len(plain_words):
        return None
    digest = hashlib.blake2b(plain_words.astype("<u8").tobytes(), digest_size=16)
    digest.update(rest.encode("utf-8", "replace"))
    return digest.digest()


@functools.cache
def _family(count: int, seed: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    with np.errstate(over="ignore"):
        steps = np.arange(1, 2 * count + 1, dtype=np.uint64) * np.uint64(_SPLITMIX_STEP)
        numbers = mix(steps + np.uint64(seed % 2**64))
    return numbers[:count] | np.uint64(1), numbers[count:]
