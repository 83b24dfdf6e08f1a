"""Keeping lists of prose: resiliparse's main-content rules take every ``<ul>`` near the page's root for navigation.

They go by depth alone. So a list that holds text rather than links is put deeper here, before the page is parsed. This
works on the source, in linear time; walking the tree from Python costs ten times the extraction itself.
"""

from __future__ import annotations

import re

MAX_LINK_SHARE = 0.3
"""Share of a list's text in links above which it is navigation."""

MIN_TEXT = 20
"""Characters of text below which a list is not worth keeping."""

_LIST = re.compile(r"<(/?)ul\b[^<>]*>", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")
_LINK = re.compile(r"<a\b[^<>]*>([^<]*(?:<(?!/?a\b)[^<]*)*)</a\s*>", re.IGNORECASE)
_SPACES = re.compile(r"\s+")
_LEVELS = 8
_OPEN, _CLOSE = "<div>" * _LEVELS, "</div>" * _LEVELS


def deepen_text_lists(html: str) -> str:
    """The page with its lists of text set deep enough to count as content."""
    parts: list[str] = []
    done = depth = start = 0
    for tag in _LIST.finditer(html):
        if not tag[1]:
            start = tag.start() if depth == 0 else start
            depth += 1
        elif depth:
            depth -= 1
            if depth == 0 and _is_text(html[start : tag.end()]):
                parts += (html[done:start], _OPEN, html[start : tag.end()], _CLOSE)
                done = tag.end()
    parts.append(html[done:])
    return "".join(parts)


def _is_text(source: str) -> bool:
    length = _text_length(source)
    return length >= MIN_TEXT and sum(map(_text_length, _LINK.findall(source))) <= MAX_LINK_SHARE * length


def _text_length(source: str) -> int:
    return len(_SPACES.sub(" ", _TAG.sub("", source)).strip())
