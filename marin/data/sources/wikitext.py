"""The plain text of MediaWiki's markup: prose, headings and lists; no templates, tables, references or files.

Every pass is linear in the length of the text, whatever it holds.
"""

from __future__ import annotations

import html
import re

_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_DROPPED = ("ref", "math", "gallery", "timeline", "score", "imagemap", "templatedata", "syntaxhighlight", "source")
_DROPPED_EMPTY = re.compile(rf"<(?:{'|'.join(_DROPPED)})\b[^<>]{{0,2000}}/>", re.IGNORECASE)
_DROPPED_START = re.compile(rf"<({'|'.join(_DROPPED)})\b[^<>]{{0,2000}}>", re.IGNORECASE)
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,2000}>")
_MARKS = re.compile(r"\{\{|\}\}|\{\||\|\}")
_BRACKETS = re.compile(r"\[\[|\]\]")
_NO_PROSE = re.compile(r"\s*(?:file|image|category|datei|bild|kategorie|fichier|catégorie|archivo|categoría)\s*:", re.I)
_EXTERNAL = re.compile(r"\[(?:https?:)?//[^\s\[\]]{1,2000}(?:[ \t]+([^\[\]\n]{0,2000}))?\]")
_EMPHASIS = re.compile(r"'{2,5}")
_HEADING = re.compile(r"(?m)^={1,6}[ \t]*(.*?)[ \t]*={1,6}[ \t]*$")
_SWITCH = re.compile(r"__[A-Z]{3,30}__")
_LIST_MARK = re.compile(r"(?m)^[*#:;]+[ \t]*")
_SPACES = re.compile(r"[ \t]{2,}")
_BLANK_LINES = re.compile(r"\n{3,}")
_DEEPEST = 16
_EMPTY_BRACKETS = re.compile(r" ?\([ ,;]{0,20}\)")


def plain_text(markup: str) -> str:
    """The prose of a page's markup."""
    text = _COMMENT.sub("", markup)
    text = _without_dropped(_DROPPED_EMPTY.sub("", text))
    text = _without_nested(text)
    text = _links(text)
    text = _EXTERNAL.sub(lambda found: found[1] or "", text)
    text = _TAG.sub("", text)
    text = _EMPHASIS.sub("", text)
    text = _SWITCH.sub("", text)
    text = _HEADING.sub(r"\1", text)
    text = _LIST_MARK.sub("- ", text)
    text = html.unescape(text).replace("\u00a0", " ")
    text = _EMPTY_BRACKETS.sub("", text)
    text = "\n".join(_SPACES.sub(" ", line).rstrip() for line in text.split("\n"))
    return _BLANK_LINES.sub("\n\n", text).strip()


def _without_dropped(text: str) -> str:
    """The text without elements that hold no prose; one that is not closed ends with its paragraph."""
    parts: list[str] = []
    unclosed: set[str] = set()
    done = 0
    lowered = text.lower() if len(text.lower()) == len(text) else text
    for found in _DROPPED_START.finditer(text):
        if found.start() < done:
            continue
        parts.append(text[done : found.start()])
        closing = f"</{found[1].lower()}>"
        # What is not closed in all that follows is not looked for again.
        end = -1 if closing in unclosed else lowered.find(closing, found.end())
        if end >= 0:
            done = end + len(closing)
            continue
        unclosed.add(closing)
        paragraph = text.find("\n\n", found.end())
        done = paragraph if paragraph >= 0 else len(text)
    return "".join([*parts, text[done:]])


def _without_nested(text: str) -> str:
    """The text without templates and tables, which nest; a closing mark that nothing opened stays."""
    parts: list[str] = []
    open_marks: list[str] = []
    done = 0
    for found in _MARKS.finditer(text):
        mark = found[0]
        if mark in ("{{", "{|"):
            if not open_marks:
                parts.append(text[done : found.start()])
                done = found.start()
            open_marks.append(mark)
        elif open_marks and open_marks[-1] == ("{{" if mark == "}}" else "{|"):
            open_marks.pop()
            if not open_marks:
                done = found.end()
    # What is never closed was no template: only its opening marks go.
    return "".join([*parts, text[done:].replace("{{", "").replace("{|", "") if open_marks else text[done:]])


def _links(text: str) -> str:
    """The text with links as their words; files and categories go, with all that is nested in them."""
    stack: list[list[str]] = [[]]
    done = 0
    for found in _BRACKETS.finditer(text):
        stack[-1].append(text[done : found.start()])
        done = found.end()
        if found[0] == "[[":
            # A link within a file within a link is as deep as it gets; every level copies what is in it.
            if len(stack) <= _DEEPEST:
                stack.append([])
        elif len(stack) > 1:
            inner = "".join(stack.pop())
            stack[-1].append("" if _NO_PROSE.match(inner) else _shown(inner))
    stack[-1].append(text[done:])
    return "".join(part for level in stack for part in level)


def _shown(inner: str) -> str:
    target, bar, words = inner.partition("|")
    return words if bar and words.strip() else target.lstrip(":")
