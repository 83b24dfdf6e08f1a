"""A page as blocks of text, each with its place in the tree.

resiliparse builds the tree and mends the markup; its serialisation, which is well formed, is read here in one pass.
Reading it costs a third of a walk over the tree's nodes from Python.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import IntEnum

from resiliparse.parse.html import HTMLTree


class Kind(IntEnum):
    """What a block is to a reader."""

    TEXT = 1
    PARAGRAPH = 2
    HEADING = 3
    ITEM = 4
    CODE = 5
    CELL = 6


@dataclass(slots=True)
class Block:
    """A stretch of text without a break.

    Attributes:
        kind: what it is.
        node: number of the element that holds it.
        text: the text; white space is folded, but in code.
        size: its length, with a letter of a script without spaces as three.
        linked: the part of ``size`` that lies in links to other places.
        item: number of the list item around it, 0 outside of lists.
        listed: number of the list around it, 0 outside of lists.
        row: number of the table row around it, 0 outside of tables.
        cell: number of the table cell around it, 0 outside of tables.
    """

    kind: Kind
    node: int
    text: str
    size: int
    linked: int
    item: int
    listed: int
    row: int
    cell: int


@dataclass(slots=True)
class Page:
    """The blocks of a page in order, and the elements around them, numbered in order; 0 is above the root.

    Attributes:
        blocks: the text.
        parents: number of each element's parent; that of 0 is 0.
        tags: name of each element.
        names: attributes of each element as written, by which like elements are told.
        labels: of each list item, its bullet or number, with the indentation of its list.
    """

    blocks: list[Block] = field(default_factory=list)
    parents: list[int] = field(default_factory=lambda: [0])
    tags: list[str] = field(default_factory=lambda: [""])
    names: list[str] = field(default_factory=lambda: [""])
    labels: dict[int, str] = field(default_factory=dict)


class TooDeepError(Exception):
    """A page is nested too deep."""


_TEXT, _PARAGRAPH, _HEADING, _ITEM, _CODE, _CELL = (int(kind) for kind in Kind)
_KINDS = (Kind.TEXT, *Kind)
_LIST, _ROW, _BREAK, _LINK, _RULE = range(10, 15)
_INHERITED = (_ITEM, _CELL)
"""Kinds that the text of plain elements within has too."""
_BOXES = """
    body html div section article main header footer nav aside form fieldset details summary figure hgroup address
    center blockquote dl table tbody thead tfoot caption search menu optgroup legend figcaption dialog frameset marquee
"""
_ROLES: dict[str, int] = {
    **dict.fromkeys(
        _BOXES.split(),
        _TEXT,
    ),
    **dict.fromkeys(("ul", "ol"), _LIST),
    **dict.fromkeys(("p", "dt", "dd"), _PARAGRAPH),
    **dict.fromkeys(("td", "th"), _CELL),
    **dict.fromkeys(("pre", "listing"), _CODE),
    **dict.fromkeys(("h1", "h2", "h3", "h4", "h5", "h6"), _HEADING),
    "li": _ITEM,
    "tr": _ROW,
    "br": _BREAK,
    "a": _LINK,
    "hr": _RULE,
}
_END = 100
"""Added to the role of a start tag for that of the end tag."""
_LINK_END = _LINK + _END
_BREAK_TAGS, _CODE_TAGS, _RULE_TAGS = ((role, role + _END) for role in (_BREAK, _CODE, _RULE))
_TAG_ROLES = _ROLES | {f"/{name}": role + _END for name, role in _ROLES.items()}

_NO_TEXT = (
    *("script", "style", "iframe", "noembed", "noframes", "xmp", "svg", "noscript", "template", "select", "button"),
    *("textarea", "object", "canvas", "audio", "video", "map", "datalist"),
)
# Possessive: each position is looked at once, whatever the page holds.
_TAG = re.compile(
    "<(?:"
    + "|".join(rf"{name}[\s>].*?</{name}>" for name in _NO_TEXT)
    + r'|(/?[a-zA-Z][^\s/>]*+)([^>"]*+(?:"[^"]*+"[^>"]*+)*+)>|!--.*?-->|[!?/][^>]*+>)',
    re.DOTALL,
)
_PLAINTEXT = re.compile(r"<plaintext(?=[\s/>])[^>]*>", re.IGNORECASE)
_SOURCE_CODE = re.compile(r"<(?:!--|([sS](?:[cC][rR][iI][pP][tT]|[tT][yY][lL][eE]))(?=[\s>]))")
_WIDE = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_LINE = "\0"
_NEAR = 2000
"""Characters of a tag within which its attributes are searched for what looks like a script."""


def text_size(text: str) -> int:
    """Length of a text, with each letter of a script that writes without spaces, or in syllables, as three."""
    return len(text) if text.isascii() else len(text) + 2 * len(_WIDE.findall(text))


def read_page(html: str, *, max_depth: int = 512) -> Page:
    """The blocks of a page.

    Raises:
        TooDeepError: elements that make blocks are nested deeper than ``max_depth``.
    """
    source = _without_source_code(html)
    try:
        body = HTMLTree.parse(source).body
    except UnicodeEncodeError:  # surrogates, which UTF-8 does not hold
        body = HTMLTree.parse(source.encode("utf-8", "replace").decode()).body
    page = Page()
    if body is None:
        return page
    markup = body.html
    if "<plaintext>" in markup:
        # What follows it is written out as it was, tags and all; as preformatted text it is markup again.
        tree = HTMLTree.parse(_PLAINTEXT.sub("<pre>", source).encode("utf-8", "replace").decode())
        markup = tree.body.html if tree.body is not None else ""
    _read_markup(markup, page, max_depth)
    return page


def _without_source_code(html: str) -> str:
    """The page without scripts and styles, which are half of most pages and would be parsed and written again.

    What stands in a comment or within a tag is left to the parser.
    """
    parts: list[str] = []
    done = position = 0
    while start := _SOURCE_CODE.search(html, position):
        at, name = start.start(), start[1]
        if name is None:
            position = html.find("-->", at + 2) + 3
            if position < 3:
                break
            continue
        near = max(0, at - _NEAR)
        if html.rfind("<", near, at) > html.rfind(">", near, at):
            position = start.end()
            continue
        end = _end_tag(html, name, start.end())
        if end < 0:
            break
        parts.append(html[done:at])
        done = position = end
    parts.append(html[done:])
    return "".join(parts)


def _end_tag(html: str, name: str, start: int) -> int:
    """Where the end tag of an element of raw text ends, or -1."""
    length = len(name)
    while (start := html.find("</", start)) >= 0:
        if html[start + 2 : start + 2 + length].lower() == name.lower():
            return html.find(">", start) + 1 or -1
        start += 2
    return -1


_Frame = tuple[int, int, int, int, int, int, int]
"""An open element as its text sees it: its number, its kind, the numbers of the list item, row, cell and list around it
and how many lists are open."""


def _read_markup(source: str, page: Page, max_depth: int) -> None:
    """Read serialised markup into a page. One loop, since it runs once for each tag of a crawl."""
    # What lies between tags, and of each tag its name, with a slash for an end tag, and its attributes.
    tokens = iter(_TAG.split(source))
    text = next(tokens)
    roles = _TAG_ROLES.get
    frame: _Frame = (0, _TEXT, 0, 0, 0, 0, 0)
    frames = [frame]
    counts: dict[int, int] = {}
    in_link = in_code = 0
    parts: list[str] = []
    linked: list[str] = []
    if text and not text.isspace():
        parts.append(text)
    for name, attributes, text in zip(tokens, tokens, tokens, strict=True):
        role = roles(name)
        if role is not None:
            if role == _LINK:
                in_link = 0 if 'href="#' in attributes or "href=" not in attributes else 1
            elif role == _LINK_END:
                in_link = 0
            elif role in _BREAK_TAGS:
                parts.append("\n" if in_code else _LINE)
            else:
                if parts:
                    if not in_code or role in _CODE_TAGS:
                        _add_block(page, frame, parts, linked, in_code > 0)
                    elif not parts[-1].endswith("\n"):
                        parts.append("\n")
                if role in _CODE_TAGS:
                    in_code += -1 if role > _END else 1
                if role in _RULE_TAGS:
                    pass
                elif role > _END:
                    if len(frames) > 1:
                        frames.pop()
                        frame = frames[-1]
                else:
                    frame = _enter(page, frame, role, name, attributes, counts)
                    frames.append(frame)
                    if len(frames) > max_depth:
                        raise TooDeepError
        if text:
            if not in_code and text.isspace():
                if parts:
                    parts.append(" ")
            else:
                parts.append(text)
                if in_link:
                    linked.append(text)
    if parts:
        _add_block(page, frame, parts, linked, in_code > 0)


def _enter(page: Page, frame: _Frame, role: int, name: str, attributes: str, counts: dict[int, int]) -> _Frame:
    """The frame of an element that opens; ``counts`` are the items so far of each numbered list."""
    parent, above, item, row, cell, listed, depth = frame
    node = len(page.parents)
    page.parents.append(parent)
    page.tags.append(name)
    page.names.append(attributes)
    if role == _TEXT:
        return (node, above if above in _INHERITED else _TEXT, item, row, cell, listed, depth)
    kind = _TEXT if role > _CELL else role
    if role == _ITEM:
        item = node
        label = "• "
        if listed in counts:
            counts[listed] += 1
            label = f"{counts[listed]}. "
        page.labels[node] = "  " * depth + label
    elif role == _LIST:
        listed = node
        depth += 1
        if name == "ol":
            counts[node] = 0
    elif role == _ROW:
        row = node
    elif role == _CELL:
        cell = node
    if kind == _TEXT and above in _INHERITED:
        kind = above
    return (node, kind, item, row, cell, listed, depth)


def _add_block(page: Page, frame: _Frame, parts: list[str], linked: list[str], code: bool) -> None:
    """Make a block of the text since the last one."""
    text = "".join(parts)
    parts.clear()
    link_text = "".join(linked)
    linked.clear()
    if "&nbsp;" in text:
        text = text.replace("&nbsp;", " ")
    if code:
        text = text.strip("\n").rstrip()
    elif _LINE in text:
        text = "\n".join(filter(None, (" ".join(line.split()) for line in text.split(_LINE))))
    else:
        text = " ".join(text.split())
    if frame[1] == _HEADING:
        text = text.removesuffix("¶").removesuffix(" #").rstrip()
    if not text:
        return
    if "&" in text:
        text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    size = len(text) if text.isascii() else text_size(text)
    in_links = min(size, text_size(" ".join(link_text.split()))) if link_text else 0
    page.blocks.append(Block(_KINDS[frame[1]], frame[0], text, size, in_links, frame[2], frame[5], frame[3], frame[4]))
