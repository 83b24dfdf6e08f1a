"""Words by which pages name what is not their content: navigation, advertising, sharing, comments.

The names are those of class, id and role attributes, in the terms of common site software. A word is a hint, not a
verdict: :mod:`marin.data.crawl.extraction.content` drops none that covers most of a page's prose.
"""

from __future__ import annotations

import functools
import itertools
import re

HIDDEN = "hidden"
"""The mark of an element that a reader does not see."""

COMMENT = "comment"
"""The mark of what readers wrote below a page."""


def _words(text: str, between: str | None = None) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(between))


FIRM = _words("""
    nav navbar navigation menu breadcrumb breadcrumbs footer foot masthead topbar toolbar cookie cookies consent gdpr
    newsletter newsletters signup login register advert adverts advertisement advertising ad ads adsense copyright
    paywall contentinfo search modal popup popover overlay dropdown dialog alertdialog
""")
"""Marks that hold for most of a page too, up to some size: a long notice on cookies stays one."""

_WORDS = FIRM | _words("""
    submenu megamenu sidebar rail subscribe subscription promo promos promotion promoted sponsor sponsored sponsors dfp
    gpt banner banners share shares sharing sharer sharedaddy social follow related recommended recommendation
    recommendations recirc recirculation popular trending mostread readmore readnext upnext seealso alsoread teaser
    teasers outbrain taboola pagination paging pager paginator tags taglist byline author bio timestamp dateline
    postmeta caption credit credits donate donation infobox navbox noprint toc tooltip complementary skip skiplink
    catlinks printfooter editsection jumplink sphinxsidebar postprofile userinfo usertitle signature
""")
_PAIRS: frozenset[tuple[str, ...]] = frozenset(
    tuple(pair.split())
    for pair in _words(
        """side bar|sign up|log in|sign in|most read|most viewed|read more|read next|up next|see also|also read|more on|
        more from|more stories|more news|more articles|sr only|visually hidden|screen reader|print only|tag list|
        post meta|entry meta|article meta|widget area|skip link|table contents|related posts""",
        "|",
    )
)
_COMMENTS = _words("comment comments commentlist disqus respond reply replies feedback")
_NOTES = _words("note notes warning tip hint important caution danger admonition callout pullquote")
_EMBEDDED = _words("embed embedded tweet")
_TAGS = {
    "nav": "nav",
    "footer": "footer",
    "aside": "aside",
    "figcaption": "caption",
    "address": "address",
    "menu": "menu",
    "dialog": "dialog",
    "search": "search",
}

_NAMES = re.compile(r'\s(?:class|id|role)="([^"]{1,400})')
_PIECE = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_WIDGET = re.compile(r'(?:^|\s)widget(?:$|[\s_"])')
_UNSEEN = re.compile(r'\shidden=|\saria-hidden="true"|\sstyle="[^"]{0,400}?(?:display:\s*none|visibility:\s*hidden)')
_CACHED_LENGTH = 400
_LOOKED_AT = 4000


def boilerplate_mark(tag: str, attributes: str) -> str:
    """The word that marks an element as boilerplate, :data:`HIDDEN`, :data:`COMMENT`, or nothing.

    Args:
        tag: name of the element, in lower case.
        attributes: its attributes as they are serialised, with a space before each.
    """
    if not attributes:
        return _TAGS.get(tag, "")
    if len(attributes) > _CACHED_LENGTH:
        return _mark(tag, attributes[:_LOOKED_AT])
    mark: str = _cached_mark(tag, attributes)
    return mark


def _mark(tag: str, attributes: str) -> str:
    if ("hidden" in attributes or "none" in attributes) and _UNSEEN.search(attributes):
        return HIDDEN
    names = " ".join(_NAMES.findall(attributes))
    if not names:
        return _TAGS.get(tag, "")
    pieces: list[str] = [piece.lower() for piece in _PIECE.findall(names)]
    words = set(pieces)
    if tag == "aside" and not words.isdisjoint(_NOTES):
        return ""
    if not words.isdisjoint(_EMBEDDED):
        return _TAGS.get(tag, "")
    if not words.isdisjoint(_COMMENTS):
        return COMMENT
    found = words & _WORDS
    if found:
        return min(found & FIRM) if found & FIRM else min(found)
    pairs = _PAIRS.intersection(itertools.pairwise(pieces))
    if pairs:
        return " ".join(min(pairs))
    if "widget" in words and _WIDGET.search(names):
        return "widget"
    return _TAGS.get(tag, "")


_cached_mark = functools.lru_cache(maxsize=20_000)(_mark)
