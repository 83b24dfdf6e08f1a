"""Hashed words and pairs of words: a text as a sparse vector of counts.

Imports scipy and scikit-learn; import this module inside step bodies only.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.feature_extraction.text import HashingVectorizer

HASHED = 2**18
"""Length of the vectors."""

FOLDED = 2**15
"""Length of the vectors of topics; a divisor of `HASHED`, so that places fold onto each other evenly."""

# Scripts without spaces count by characters, pairs of which are about what words are elsewhere.
_WORD = r"(?u)[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W_]+"


@functools.cache
def _vectoriser(longest: int) -> Any:
    return HashingVectorizer(
        n_features=HASHED, ngram_range=(1, longest), token_pattern=_WORD, alternate_sign=False, norm=None
    )


def hashed_counts(texts: Sequence[str]) -> sp.csr_matrix:
    """Counts of words and of pairs of words [texts, HASHED]; row for row, so the same for any batch."""
    counts: sp.csr_matrix = sp.csr_matrix(_vectoriser(2).transform(texts), dtype=np.float32)
    counts.sum_duplicates()
    return counts


def words_of(text: str) -> list[str]:
    """The words of a text, as they are counted."""
    words: list[str] = _vectoriser(1).build_analyzer()(text)
    return words


def places_of(words: Sequence[str]) -> list[int]:
    """The place of each single word in the vectors."""
    if not words:
        return []
    analysed = HashingVectorizer(n_features=HASHED, analyzer=lambda word: [word], alternate_sign=False, norm=None)
    return [int(place) for place in analysed.transform(words).indices]


def folded(counts: sp.csr_matrix) -> sp.csr_matrix:
    """The same counts in `FOLDED` places."""
    # Adding up happens in place, so what belongs to `counts` is copied first.
    parts = (counts.data.copy(), counts.indices % FOLDED, counts.indptr.copy())
    small = sp.csr_matrix(parts, shape=(counts.shape[0], FOLDED))
    small.sum_duplicates()
    return small
