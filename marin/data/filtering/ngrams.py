"""Repetition of n-grams of words, for many texts at once.

N-grams are told apart by the numbers of their words, not by hashes, and never cross from one text into the next, so
that what is found in a text does not depend on its neighbours.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marin.data.filtering.config import DUPLICATE_N_GRAMS, TOP_N_GRAMS

Integers = NDArray[np.int64]

_KEY_BITS = 63
_WORD_BITS = 20
"""Bits of a word number from which words are numbered anew, so that two of them and a place go into a key."""


@dataclass(frozen=True)
class WordRuns:
    """The words of several texts behind one another.

    Attributes:
        words: number of each word; equal numbers are equal words.
        lengths: characters of each word.
        bounds: where each text begins in them, and after the last where it ends.
    """

    words: Integers
    lengths: Integers
    bounds: Integers


@dataclass(frozen=True)
class _Grams:
    """N-grams that occur more than once in their text, by place.

    Attributes:
        places: where each occurrence begins, grouped by n-gram, ascending within a group.
        again: whether the n-gram of each occurrence occurred before.
        groups: number of the n-gram of each occurrence, from 0.
        firsts: where each n-gram begins first.
        counts: occurrences of each n-gram.
    """

    places: Integers
    again: NDArray[np.bool_]
    groups: Integers
    firsts: Integers
    counts: Integers


def repetition(runs: WordRuns, scales: Integers) -> dict[str, Integers]:
    """Characters in the most frequent short n-gram, and in repeated long ones, of each text and size.

    Characters of the most frequent n-gram count the spaces between its words, those of repeated n-grams do not, as in
    the rules' reference implementation.

    Args:
        runs: the words.
        scales: how many words of each text stand for one: 1 but for scripts without spaces, where words are
            characters and n-grams are as many times longer, and no spaces are between them.

    Returns:
        One array over texts for each size, named as the feature columns are.
    """
    names = [*(f"top_{n}_gram" for n in TOP_N_GRAMS), *(f"duplicate_{n}_grams" for n in DUPLICATE_N_GRAMS)]
    found = {name: np.zeros(len(scales), np.int64) for name in names}
    for scale in np.unique(scales).tolist():
        here = scales == scale
        of_scale = _repetition(runs if here.all() else _chosen(runs, here), scale)
        for name in names:
            found[name][here] = of_scale[name]
    return found


def _chosen(runs: WordRuns, texts: NDArray[np.bool_]) -> WordRuns:
    counts = np.diff(runs.bounds)
    words = np.repeat(texts, counts)
    return WordRuns(runs.words[words], runs.lengths[words], np.concatenate([[0], np.cumsum(counts[texts])]))


def _repetition(runs: WordRuns, scale: int) -> dict[str, Integers]:
    counts = np.diff(runs.bounds)
    texts = len(counts)
    # A word of its own after each text: no n-gram that reaches over the end of a text is repeated.
    words, lengths, owner = _fenced(runs)
    starts = runs.bounds[:-1] + np.arange(texts)
    totals = np.concatenate([[0], np.cumsum(lengths)])
    found: dict[str, Integers] = {}
    places = np.arange(max(0, len(words) - 1))
    grams = _repeated(places, words[:-1], words[1:], owner)
    for n in range(2, scale * max(TOP_N_GRAMS + DUPLICATE_N_GRAMS) + 1):
        if n > 2:
            # An n-gram can only be repeated where a shorter one is, so each size looks at what the size before left.
            grams = _repeated(grams.places, grams.groups, words.take(grams.places + (n - 1)))
        size, rest = divmod(n, scale)
        if rest:
            continue
        if size in TOP_N_GRAMS:
            most, first = _most_frequent(grams, owner, starts)
            ends = np.minimum(first + n, len(words))
            spaces = n - 1 if scale == 1 else 0
            found[f"top_{size}_gram"] = np.where(counts >= n, most * (totals[ends] - totals[first] + spaces), 0)
        if size in DUPLICATE_N_GRAMS:
            taken = _steps(grams, n, len(words))
            characters = np.zeros(texts, np.int64)
            np.add.at(characters, owner[taken], totals[taken + n] - totals[taken])
            found[f"duplicate_{size}_grams"] = characters
    return found


def _fenced(runs: WordRuns) -> tuple[Integers, Integers, Integers]:
    """Words, their lengths and their texts, with a word of length zero after each text, which occurs nowhere else."""
    numbers = runs.words
    if len(numbers) and int(numbers.max()).bit_length() >= _WORD_BITS:
        numbers = np.unique(numbers, return_inverse=True)[1].astype(np.int64)
    fence = int(numbers.max(initial=0)) + 1
    bounds = runs.bounds.tolist()
    words, lengths, owner = np.empty((3, len(numbers) + len(bounds) - 1), np.int64)
    # Text by text, since slices are copied ten times as fast as what a mask chooses.
    for text, (begin, end) in enumerate(itertools.pairwise(bounds)):
        words[begin + text : end + text] = numbers[begin:end]
        words[end + text] = fence + text
        lengths[begin + text : end + text] = runs.lengths[begin:end]
        lengths[end + text] = 0
        owner[begin + text : end + text + 1] = text
    return words, lengths, owner


def _repeated(places: Integers, heads: Integers, tails: Integers, owner: Integers | None = None) -> _Grams:
    """Group the n-grams that begin at these places by what they are: a shorter n-gram and the word after it.

    Args:
        places: where they begin.
        heads: number of the shorter n-gram.
        tails: number of the last word.
        owner: the text of every place, unless the numbers of the shorter n-grams tell the texts apart.
    """
    if not len(places):
        return _Grams(places, places.astype(np.bool_), places, places, places)
    place_bits = int(places.max()).bit_length()
    tail_bits = int(tails.max()).bit_length()
    keys = heads << tail_bits
    keys |= tails
    if int(keys.max()).bit_length() + place_bits > _KEY_BITS:
        keys = np.unique(keys, return_inverse=True)[1].astype(np.int64)
    # The place is in the key, so that sorting whole numbers, which is fast, keeps equal n-grams in order.
    keys <<= place_bits
    keys |= places
    keys.sort()
    places = keys & ((1 << place_bits) - 1)
    keys >>= place_bits
    # Whether each equals the one before it; there is none before the first, and none after the last.
    same = np.zeros(len(keys) + 1, np.bool_)
    np.equal(keys[1:], keys[:-1], out=same[1:-1])
    if owner is not None:
        owners = owner.take(places)
        same[1:-1] &= owners[1:] == owners[:-1]
    # By numbers, since choosing by a mask and repeating by counts take five times as long.
    kept = np.flatnonzero(same[1:] | same[:-1])
    places, again = places.take(kept), same.take(kept)
    begins = np.flatnonzero(~again)
    return _Grams(
        places=places,
        again=again,
        groups=np.cumsum(~again, dtype=np.int32).astype(np.int64) - 1,
        firsts=places.take(begins),
        counts=np.diff(begins, append=len(kept)),
    )


def _most_frequent(grams: _Grams, owner: Integers, starts: Integers) -> tuple[Integers, Integers]:
    """How often each text's most frequent n-gram occurs and where it begins; of equally frequent ones the first."""
    # Where no n-gram is repeated, it is the first, once.
    counts, firsts = np.ones(len(starts), np.int64), starts.copy()
    if len(grams.firsts):
        place_bits = len(owner).bit_length()
        last = (1 << place_bits) - 1
        # Ascending by text, then count, then earliness: what is written last for a text stays.
        keys = (((owner[grams.firsts] << place_bits) | grams.counts) << place_bits) | (last - grams.firsts)
        keys.sort()
        found = last - (keys & last)
        counts[owner[found]] = (keys >> place_bits) & last
        firsts[owner[found]] = found
    return counts, firsts


def _steps(grams: _Grams, n: int, words: int) -> Integers:
    """Where n-grams that occurred before are counted, reading from the left, where such a one is stepped over whole.

    What is stepped over does not count as having occurred.

    Args:
        grams: repeated n-grams.
        n: words in an n-gram.
        words: number of words in all.
    """
    again = np.flatnonzero(grams.again)
    if not len(again):
        return again
    # Places in order, and how many lie before each place, come from marks on all words: that is cheaper than sorting
    # the places and searching among them.
    marks = np.zeros(words + n + 1, np.bool_)
    marks[grams.places.take(again)] = True
    numbers = np.flatnonzero(marks)
    before = np.zeros(len(marks) + 1, np.int32)
    np.cumsum(marks, dtype=np.int32, out=before[1:])
    group_at = np.empty(words, np.int64)
    group_at[grams.places] = grams.groups
    groups = group_at.take(numbers)
    firsts = grams.firsts.take(groups)
    # What is counted less than n words before the first occurrence steps over it. Where nothing there can be counted,
    # which is so for most, the first occurrence holds.
    low, high = before.take(np.maximum(0, firsts - (n - 1))), before.take(firsts)
    doubtful = (low < high).tobytes()
    # Views, since few of these numbers are asked for.
    after, lows, highs, group_of = (part.data for part in (before.take(numbers + n), low, high, groups))
    taken: list[int] = []
    occurred_later: set[int] = set()
    at, end = 0, len(numbers)
    while at < end:
        if doubtful[at] and group_of[at] not in occurred_later:
            last = bisect_left(taken, highs[at]) - 1
            if last >= 0 and taken[last] >= lows[at]:
                occurred_later.add(group_of[at])
                at += 1
                continue
        taken.append(at)
        at = after[at]
    return numbers.take(taken)
