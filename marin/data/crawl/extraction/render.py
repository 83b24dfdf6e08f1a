"""Blocks of a page as readable text: list items with their bullets, table rows on a line, code as it stands."""

from __future__ import annotations

from collections.abc import Sequence

from marin.data.crawl.extraction.blocks import Block, Kind, Page

CELL_SEPARATOR = " | "
_LONG_CELL = 400


def render(page: Page, blocks: Sequence[Block]) -> str:
    """The text of some blocks of a page."""
    parts: list[str] = []
    previous: Block | None = None
    labelled: set[int] = set()
    for block in blocks:
        if previous is not None:
            parts.append(_between(previous, block))
        if block.item and block.item not in labelled and block.kind is not Kind.CODE:
            labelled.add(block.item)
            parts.append(page.labels[block.item])
        parts.append(block.text)
        previous = block
    return "".join(parts)


def _between(one: Block, other: Block) -> str:
    if one.row and one.row == other.row and one.cell != other.cell and max(one.size, other.size) < _LONG_CELL:
        return CELL_SEPARATOR
    if one.row and other.row and one.kind is Kind.CELL and other.kind is Kind.CELL:
        return "\n"
    if one.item and other.item:
        return "\n"
    return "\n\n"
