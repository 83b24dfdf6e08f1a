"""Counting lines over documents and sites, by sorting their hashes: exact, but for two lines of one 64-bit hash.

A wrong cut takes a line that shares its hash with a boilerplate line: among 10^9 lines and 10^6 boilerplate lines that
happens once in 20,000 corpora.

Imports numpy; import this module inside step bodies only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from marin.data.dedup.exchange import Hashes
from marin.data.dedup.spans_config import LineConfig
from marin.data.filtering.words import mix

Counts = NDArray[np.int64]

EVERYWHERE = 0
"""Stands for the site of a line that is boilerplate on every site."""

_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Boilerplate:
    """Lines that are boilerplate: one row for each site where they are, or one for all sites.

    Attributes:
        places: hash of line and site, ascending.
        line: hash of the line.
        documents: documents of the site that have it, or of all sites.
        keeper: the least hash of a text that has it.
    """

    KINDS: ClassVar = (np.uint64, np.uint64, np.int64, np.uint64)

    places: Hashes
    line: Hashes
    documents: Counts
    keeper: Hashes

    @staticmethod
    def of(line: Hashes, site: Hashes, documents: Counts, keeper: Hashes) -> Boilerplate:
        """From its rows in any order."""
        return Boilerplate.from_columns([place_of(line, site), line, documents, keeper])

    @staticmethod
    def from_columns(columns: Sequence[NDArray[Any]]) -> Boilerplate:
        """From columns in the order of the attributes, with rows in any order."""
        order = np.argsort(columns[0], kind="stable")
        return Boilerplate(*(column[order] for column in columns))

    def columns(self) -> tuple[Hashes, Hashes, Counts, Hashes]:
        """The columns in the order of the attributes."""
        return self.places, self.line, self.documents, self.keeper

    @property
    def lines(self) -> int:
        """Number of different lines."""
        return len(np.unique(self.line))

    def top(self, count: int) -> tuple[tuple[int, int], ...]:
        """(hash, documents) of the lines on most documents, over all sites where they are boilerplate."""
        lines, at = np.unique(self.line, return_inverse=True)
        documents = np.zeros(len(lines), np.int64)
        np.add.at(documents, at, self.documents)
        chosen = np.lexsort((lines, -documents))[:count]
        return tuple(zip(lines[chosen].tolist(), documents[chosen].tolist(), strict=True))

    def judge(self, lines: Hashes, site: int, text: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which lines of a document are boilerplate, and for which of these the document is the one that keeps it."""
        here, keeps_here = self._find(place_of(lines, np.uint64(site)), text)
        everywhere, keeps = self._find(place_of(lines, np.uint64(EVERYWHERE)), text)
        return here | everywhere, np.where(everywhere, keeps, keeps_here)

    def _find(self, places: Hashes, text: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        if not len(self.places):
            return np.zeros(len(places), np.bool_), np.zeros(len(places), np.bool_)
        at = np.minimum(np.searchsorted(self.places, places), len(self.places) - 1)
        found = self.places[at] == places
        return found, found & (self.keeper[at] == np.uint64(text))


def place_of(lines: Hashes, site: Hashes | np.uint64) -> Hashes:
    """Hash of lines on a site."""
    with np.errstate(over="ignore"):
        return mix(lines * _FACTOR + site)


def count_sites(site: Hashes, text: Hashes, least: int) -> tuple[Hashes, Counts]:
    """Sites with more than ``least`` different texts, ascending, and how many they have."""
    site, text = _distinct(site, text)
    sites, counts = np.unique(site, return_counts=True)
    return sites[counts > least], counts[counts > least]


def count_lines(
    line: Hashes, site: Hashes, text: Hashes, sites: tuple[Hashes, Counts], config: LineConfig
) -> tuple[Boilerplate, int]:
    """The boilerplate among all occurrences of some lines, and the number of different lines.

    Args:
        line: hash of a line, once for each document that has it.
        site: hash of the document's site.
        text: hash of the document's text.
        sites: what `count_sites` found for all sites.
        config: what is boilerplate.
    """
    lines, counts = np.unique(line, return_counts=True)
    # Most lines occur once: what cannot reach any limit goes before the costly sort.
    least = config.least_documents if config.least_sites is None else min(config.least_documents, config.least_sites)
    often = lines[counts > least]
    wanted = _among(line, often)
    line, site, text = _distinct(line[wanted], site[wanted], text[wanted])
    begins = _begins(line, site)
    on_line, on_site = line[begins], site[begins]
    documents = np.diff(begins, append=len(line))
    # The texts of a line on a site are in ascending order.
    keeper = text[begins]
    of_site = _documents_of(on_site, *sites)
    here = (of_site > 0) & (documents > config.least_documents) & (documents > config.share * of_site)
    found = [(on_line[here], on_site[here], documents[here], keeper[here])]
    if config.least_sites is not None:
        found.append(_everywhere(on_line, documents, keeper, config.least_sites))
    return Boilerplate.of(*(np.concatenate(columns) for columns in zip(*found, strict=True))), len(lines)


def _everywhere(line: Hashes, documents: Counts, keeper: Hashes, least: int) -> tuple[Hashes, Hashes, Counts, Hashes]:
    """Rows for the lines that more than ``least`` sites have, given one row for each line and site, by line."""
    begins = _begins(line)
    if not len(begins):
        return line, line, documents, keeper
    sites = np.diff(begins, append=len(line))
    many = sites > least
    totals, least_text = np.add.reduceat(documents, begins), np.minimum.reduceat(keeper, begins)
    return line[begins][many], np.full(int(many.sum()), EVERYWHERE, np.uint64), totals[many], least_text[many]


def _documents_of(site: Hashes, sites: Hashes, counts: Counts) -> Counts:
    if not len(sites):
        return np.zeros(len(site), np.int64)
    at = np.minimum(np.searchsorted(sites, site), len(sites) - 1)
    return np.where(sites[at] == site, counts[at], 0)


def _among(values: Hashes, known: Hashes) -> NDArray[np.bool_]:
    if not len(known):
        return np.zeros(len(values), np.bool_)
    found: NDArray[np.bool_] = known[np.minimum(np.searchsorted(known, values), len(known) - 1)] == values
    return found


def _distinct(*columns: Hashes) -> tuple[Hashes, ...]:
    """Rows once each, ascending by the first column, then by the next."""
    order = np.lexsort(columns[::-1])
    ordered = tuple(column[order] for column in columns)
    first = np.zeros(len(order), np.bool_)
    first[_begins(*ordered)] = True
    return tuple(column[first] for column in ordered)


def _begins(*columns: Hashes) -> Counts:
    """Where another row begins in sorted columns."""
    if not len(columns[0]):
        return np.zeros(0, np.int64)
    differ = np.zeros(len(columns[0]) - 1, np.bool_)
    for column in columns:
        differ |= column[1:] != column[:-1]
    return np.concatenate([[0], np.flatnonzero(differ) + 1])
