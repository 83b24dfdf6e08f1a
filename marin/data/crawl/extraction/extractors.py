"""The extractors: HTML of one page to its text. They run in the worker process."""

from __future__ import annotations

import html as entities
import importlib.metadata
import re
from collections.abc import Callable

from marin.data.crawl.extraction.blocks import TooDeepError, read_page
from marin.data.crawl.extraction.content import main_blocks
from marin.data.crawl.extraction.render import render

Extract = Callable[[str], str]

STRIPPED = "strip-tags"
"""Name of the fallback for pages that are nested too deep for a tree."""

ARCHIVED = "archive"
"""Name of what somebody else extracted: the texts of WET files."""

_VERSION = 3
"""Raised when the scorer on resiliparse's tree, or the fallback, changes what comes out."""

# The name is possessive: given back sign by sign, a long one without an end would cost the square of its length.
_TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9-]*+)[^<>]*?(/?)>")
_VOID = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
)
_UNCLOSED = frozenset({"p", "li", "td", "th", "tr", "dt", "dd", "option"})
_HIDDEN = re.compile(
    r"<(script|style|noscript|template)\b.*?(?:</\1\s*>|\Z)|<!--.*?(?:-->|\Z)", re.DOTALL | re.IGNORECASE
)
_BLOCK = re.compile(
    r"</?(?:p|div|li|tr|h[1-6]|br|ul|ol|table|section|article|pre|blockquote|dt|dd)\b[^<>]*>", re.IGNORECASE
)
_ANY_TAG = re.compile(r"<[^<>]*>")
_SPACES = re.compile(r"[ \t]+")
_BLANK_LINES = re.compile(r"\n\s*\n+")


def extractor(name: str, max_depth: int) -> Extract:
    """The function of an extractor: page HTML to text, empty when nothing is left.

    It raises :class:`TooDeepError` for a page that is nested deeper than ``max_depth``.
    """
    return {"resiliparse": _load_resiliparse, "trafilatura": _load_trafilatura}[name](max_depth)


def extractor_version(name: str) -> str:
    """Version of an extractor, as it is recorded with each document."""
    if name in (STRIPPED, ARCHIVED):
        return str(_VERSION)
    version = importlib.metadata.version(name)
    return f"{version}+marin.{_VERSION}" if name == "resiliparse" else version


def nesting_depth(html: str, limit: int) -> int:
    """How deep elements are nested, by their tags alone; stops counting just above ``limit``."""
    if html.count("<") <= limit:
        return 0
    depth = deepest = 0
    for match in _TAG.finditer(html):
        closing, name, self_closing = match.groups()
        if self_closing or name.lower() in _VOID or name.lower() in _UNCLOSED:
            continue
        depth = max(0, depth - 1) if closing else depth + 1
        if depth > deepest:
            deepest = depth
            if deepest > limit:
                break
    return deepest


def strip_tags(html: str) -> str:
    """All text of a page, without a tree: linear in its length, for any nesting."""
    text = _ANY_TAG.sub(" ", _BLOCK.sub("\n", _HIDDEN.sub(" ", html)))
    lines = (_SPACES.sub(" ", line).strip() for line in entities.unescape(text).splitlines())
    return _BLANK_LINES.sub("\n\n", "\n".join(lines)).strip()


def _load_resiliparse(max_depth: int) -> Extract:
    def run(html: str) -> str:
        page = read_page(html, max_depth=max_depth)
        return render(page, main_blocks(page))

    return run


def _load_trafilatura(max_depth: int) -> Extract:
    from trafilatura import extract

    def run(html: str) -> str:
        if nesting_depth(html, max_depth) > max_depth:
            raise TooDeepError
        return extract(html, favor_precision=True, include_comments=False, deduplicate=False) or ""

    return run
