"""The main content of a page: which of its blocks a reader came for.

Three steps, each on the blocks of :mod:`marin.data.crawl.extraction.blocks`:

1. Elements that are marked as boilerplate are left out, unless most of the prose lies in them.
2. From the root down, the branch that holds most of the prose is followed, until the prose spreads over several.
3. Within it, blocks of links and short blocks outside of the prose are left out; headings stay with what they head.

Prose is text of some length outside of links. A page with hardly any prose, such as one of short lines, is read again
with all unlinked text as prose, and then with nothing left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from marin.data.crawl.extraction.blocks import Block, Kind, Page
from marin.data.crawl.extraction.boilerplate import COMMENT, FIRM, boilerplate_mark

MIN_PROSE = 40
"""Size of unlinked text from which a block is prose."""

GROUP_SIZE = 100
GROUP_LINKED = 0.2
"""A list or table of at least this size, with at most this share in links, is prose as a whole."""

MAX_LINKED = 0.5
"""Share of a block in links above which it is navigation."""

MOST = 0.5
"""Share of a page's prose above which what looks like boilerplate is content."""

MAIN_SHARE = 0.55
"""Share of an element's prose that its main branch holds at least."""

SIDE_SHARE = 0.15
SIDE_SIZE = 250
"""A branch beside the main one is content too with this share of its prose and this size."""

LEAF_SIZE = 120
"""A paragraph beside the main branch is content too from this size."""

LIKE_SIZE = 100
"""Prose from which a branch that is like the main one (same tag and attributes) makes both items of one list."""

FIRM_SIZE = 1000
"""An element with a firm mark and more than most of a page's prose is content from this size."""

COMMENTED = 0.25
"""A page whose prose outside of comments is less than this share of the comments is a discussion …"""

COMMENTED_SIZE = 400
"""… or one with less prose than this outside of them."""

ENOUGH = 1000
"""Size of unlinked text with which a selection is taken to be the content …"""

SPARSE = 0.25
"""… as it is with this share of the page's unlinked text outside of boilerplate."""

_UNSPLIT = frozenset({"p", "li", "pre", "td", "th", "tr", "blockquote", "dd", "dt"})
_SHORT = 20
_SHORT_LEAD = 10


def main_blocks(page: Page) -> list[Block]:
    """The blocks of the main content, in order; empty when a page has no text outside of links."""
    for least, marked in ((MIN_PROSE, True), (1, True), (1, False)):
        prose = _prose(page, least)
        dropped = _dropped(page, prose) if marked else [False] * len(page.parents)
        masses = _masses(page, prose, dropped)
        inside = _main_branch(page, masses, dropped, _own(page, prose))
        chosen = [index for index, block in enumerate(page.blocks) if inside[block.node]]
        kept = _within([page.blocks[index] for index in chosen], [prose[index] for index in chosen])
        size = _unlinked(kept)
        if size >= ENOUGH or (least == 1 and size > 0):
            return kept
        if size > 0 and size >= SPARSE * _unlinked([block for block in page.blocks if not dropped[block.node]]):
            return kept
    return []


def _unlinked(blocks: Sequence[Block]) -> int:
    return sum(block.size - block.linked for block in blocks)


def _prose(page: Page, least: int) -> list[int]:
    """Size of each block's prose, 0 for one that is none.

    The parts of a list or table that is text as a whole are prose however short they are.
    """
    sizes: Counter[int] = Counter()
    links: Counter[int] = Counter()
    groups = [block.listed or page.parents[block.row] for block in page.blocks]
    for block, group in zip(page.blocks, groups, strict=True):
        if group:
            sizes[group] += block.size
            links[group] += block.linked
    prose = []
    for block, group in zip(page.blocks, groups, strict=True):
        unlinked = block.size - block.linked
        if block.kind is Kind.HEADING or block.linked > MAX_LINKED * block.size:
            unlinked = 0
        elif unlinked < least:
            of_text = sizes[group] >= GROUP_SIZE and links[group] <= GROUP_LINKED * sizes[group]
            unlinked = unlinked if group and of_text else 0
        prose.append(unlinked)
    return prose


def _masses(page: Page, prose: Sequence[int], dropped: Sequence[bool] | None = None) -> list[int]:
    """Prose below each element, without what is dropped."""
    masses = [0] * len(page.parents)
    for block, size in zip(page.blocks, prose, strict=True):
        if size and not (dropped and dropped[block.node]):
            masses[block.node] += size
    parents = page.parents
    for node in range(len(masses) - 1, 0, -1):
        masses[parents[node]] += masses[node]
    return masses


def _dropped(page: Page, prose: Sequence[int]) -> list[bool]:
    """Which elements are boilerplate, or lie in such.

    A word that marks most of a page's prose says nothing on this page, and comments are the content of a page that has
    little else.
    """
    masses = _masses(page, prose)
    total = masses[0]
    parents = page.parents
    with_text = [False] * len(parents)
    for block in page.blocks:
        with_text[block.node] = True
    for node in range(len(parents) - 1, 0, -1):
        if with_text[node]:
            with_text[parents[node]] = True
    by_mark: Counter[str] = Counter()
    marks = [""] * len(parents)
    covered = [False] * len(parents)
    for node in range(1, len(parents)):
        if covered[parents[node]]:
            covered[node] = True
        elif with_text[node]:
            mark = boilerplate_mark(page.tags[node], page.names[node])
            if mark in FIRM and masses[node] > max(FIRM_SIZE, MOST * total):
                mark = ""
            if mark:
                marks[node] = mark
                covered[node] = True
                by_mark[mark] += masses[node]
    total -= sum(size for mark, size in by_mark.items() if mark in FIRM)
    void = {mark for mark, size in by_mark.items() if size > MOST * total and mark not in FIRM}
    comments = by_mark[COMMENT]
    rest = total - sum(size for mark, size in by_mark.items() if mark not in FIRM)
    if comments and rest < max(COMMENTED * comments, min(COMMENTED_SIZE, comments)):
        void.add(COMMENT)
    dropped = [False] * len(parents)
    for node in range(1, len(parents)):
        if dropped[parents[node]]:
            dropped[node] = True
        elif with_text[node]:
            # Below a mark that turned out to say nothing, marks have not been looked up yet.
            mark = marks[node] or (boilerplate_mark(page.tags[node], page.names[node]) if covered[node] else "")
            firm = mark in FIRM and masses[node] <= FIRM_SIZE
            dropped[node] = firm or (bool(mark) and mark not in void and masses[node] <= MOST * total)
    return dropped


def _own(page: Page, prose: Sequence[int]) -> list[int]:
    """Prose of each element that lies in none of its children."""
    own = [0] * len(page.parents)
    for block, size in zip(page.blocks, prose, strict=True):
        own[block.node] += size
    return own


def _main_branch(page: Page, masses: Sequence[int], dropped: Sequence[bool], own: Sequence[int]) -> list[bool]:
    """Which elements lie in the main branch, or in one beside it that is content too."""
    children: dict[int, list[int]] = {}
    for node in range(1, len(page.parents)):
        if masses[node] and not dropped[node]:
            children.setdefault(page.parents[node], []).append(node)
    at = 0
    beside: set[int] = set()
    while branches := children.get(at):
        main = max(branches, key=masses.__getitem__)
        others = [branch for branch in branches if branch != main]
        if masses[main] < MAIN_SHARE * masses[at] or page.tags[main] in _UNSPLIT:
            break
        if any(_alike(page, main, other) and masses[other] >= LIKE_SIZE for other in others):
            break
        side_size = max(SIDE_SIZE, SIDE_SHARE * masses[main])
        beside.update(other for other in others if masses[other] >= side_size or own[other] >= LEAF_SIZE)
        at = main
    inside = [False] * len(page.parents)
    for node in range(len(page.parents)):
        inside[node] = (node == at or node in beside or (node > 0 and inside[page.parents[node]])) and not dropped[node]
    return inside


def _alike(page: Page, one: int, other: int) -> bool:
    return page.tags[one] == page.tags[other] and page.names[one] == page.names[other]


def _within(blocks: Sequence[Block], prose: Sequence[int]) -> list[Block]:
    """The blocks of the main branch without those of links, and without short ones outside of the prose."""
    good = [index for index, size in enumerate(prose) if size]
    if not good:
        return []
    first, last = good[0], good[-1]
    kept = [False] * len(blocks)
    for index, block in enumerate(blocks):
        if block.kind is Kind.HEADING or block.linked > MAX_LINKED * block.size:
            continue
        kept[index] = (
            first <= index <= last
            or block.kind in (Kind.CODE, Kind.CELL, Kind.ITEM)
            or (block.kind is Kind.PARAGRAPH and block.size > (_SHORT if index > last else _SHORT_LEAD))
        )
    _keep_whole_rows(blocks, kept)
    follows = False
    for index in range(len(blocks) - 1, -1, -1):
        block = blocks[index]
        if block.kind is Kind.HEADING:
            kept[index] = follows and block.linked <= MAX_LINKED * block.size
        else:
            follows = kept[index]
    return [block for block, keep in zip(blocks, kept, strict=True) if keep]


def _keep_whole_rows(blocks: Sequence[Block], kept: list[bool]) -> None:
    """A table row or list item with a part that is kept is kept as a whole, since a link is often its first part; so is
    a list that is more text than links."""
    sizes: Counter[int] = Counter()
    links: Counter[int] = Counter()
    for block in blocks:
        if block.listed:
            sizes[block.listed] += block.size
            links[block.listed] += block.linked
    rows = {block.row for block, keep in zip(blocks, kept, strict=True) if keep and block.row}
    items = {block.item for block, keep in zip(blocks, kept, strict=True) if keep and block.item}
    for index, block in enumerate(blocks):
        if kept[index] or block.kind is Kind.HEADING:
            continue
        of_text = block.listed and links[block.listed] <= MAX_LINKED * sizes[block.listed]
        in_row = block.row in rows and block.kind is Kind.CELL
        kept[index] = in_row or block.item in items or bool(of_text)
