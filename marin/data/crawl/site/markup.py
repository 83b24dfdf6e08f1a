"""Docstrings and README text to HTML: the common ground of reStructuredText, Markdown and numpydoc."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

_UNDERLINE = re.compile(r"^([=\-~^\"'#*+])\1{2,}\s*$")
_BULLET = re.compile(r"^(\s*)(?:[-*+•]|\d{1,2}[.)])\s+(.*)$")
_DEFINITION = re.compile(r"^(\*{0,2}[\w.\[\]*, ]{1,60}\s*:\s*\S.*|\*{0,2}[A-Za-z_][\w.]{0,40})$")
_SECTION = re.compile(
    r"^(Args|Arguments|Parameters|Returns?|Raises|Yields?|Attributes|Examples?|Notes?|Keyword Args|Usage|References"
    r"|Shape|Warnings?|See Also|Methods)\s*:{1,2}\s*$"
)
_HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*$")
_ADMONITION = re.compile(r"^\s*\.\. (note|warning|deprecated|versionadded|versionchanged|seealso|tip)::\s*(.*)$")
_CODE_DIRECTIVE = re.compile(r"^\s*\.\. (?:code-block|code|sourcecode|ipython|testcode|doctest|plot)::")
_DIRECTIVE = re.compile(r"^\s*\.\. ")
_FENCE = re.compile(r"^\s*(```|~~~)")
_TAGS = re.compile(r"</?[a-zA-Z][^>]*>|<!--.*?-->", re.DOTALL)
_IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)|\[!\[[^\]]*\]\([^)]*\)\]\([^)]*\)")

_INLINE = re.compile(
    r"``(?P<literal>[^`]+)``"
    r"|:[\w:]+:`~?(?P<role>[^`]+)`"
    r"|`(?P<label>[^`<]+?)\s*&lt;(?P<target>https?://[^&`]+)&gt;`_{0,2}"
    r"|\[(?P<text>[^\]\[]+)\]\((?P<url>https?://[^)\s]+)\)"
    r"|`(?P<code>[^`]+)`_{0,2}"
    r"|\*\*(?P<strong>[^*\s][^*]*)\*\*"
)


def render(text: str, *, markdown: bool = False) -> str:
    """HTML of one text. ``markdown`` reads ``#`` headings and takes out raw HTML, as README files need."""
    if markdown:
        text = _TAGS.sub("", _IMAGE.sub("", text))
    lines = [line.rstrip() for line in text.expandtabs(4).splitlines()]
    return "\n".join(_blocks(lines, markdown))


def inline(text: str) -> str:
    """HTML of running text: escaped, with code, emphasis and links."""
    return _INLINE.sub(_inline_match, html.escape(text, quote=False))


def _inline_match(match: re.Match[str]) -> str:
    group = match.groupdict()
    for name in ("literal", "role", "code"):
        if group[name] is not None:
            return f"<code>{group[name].split(' &lt;')[0] if name == 'role' else group[name]}</code>"
    if group["strong"] is not None:
        return f"<strong>{group['strong']}</strong>"
    label, url = (group["label"], group["target"]) if group["target"] else (group["text"], group["url"])
    return f'<a href="{html.escape(html.unescape(url))}" rel="external">{label}</a>'


def _blocks(lines: list[str], markdown: bool) -> Iterator[str]:
    index = 0
    while index < len(lines):
        line = lines[index]
        if not line:
            index += 1
        elif _FENCE.match(line):
            end = next((n for n in range(index + 1, len(lines)) if _FENCE.match(lines[n])), len(lines))
            yield _code(lines[index + 1 : end])
            index = end + 1
        elif line.lstrip().startswith((">>> ", "$ ")):
            end = _until_blank(lines, index)
            yield _code(lines[index:end])
            index = end
        elif markdown and (heading := _HEADING.match(line)):
            yield _heading(heading[2], min(len(heading[1]) + 1, 6))
            index += 1
        elif index + 1 < len(lines) and _UNDERLINE.match(lines[index + 1]) and not _UNDERLINE.match(line):
            yield _heading(line, 3)
            index += 2
        elif _UNDERLINE.match(line):
            index += 1
        elif section := _SECTION.match(line.strip()):
            yield _heading(section[1], 4)
            index += 1
        elif admonition := _ADMONITION.match(line):
            yield f'<p class="admonition">{admonition[1].capitalize()}: {inline(admonition[2])}</p>'
            index += 1
        elif _CODE_DIRECTIVE.match(line):
            end = _end_of_deeper(lines, index)
            yield _code(_without_options(lines[index + 1 : end]))
            index = end
        elif _DIRECTIVE.match(line):
            index = _end_of_deeper(lines, index)
        elif _BULLET.match(line):
            end, items = _list_items(lines, index)
            yield "<ul>\n" + "\n".join(f"<li>{inline(item)}</li>" for item in items) + "\n</ul>"
            index = end
        elif _DEFINITION.match(line.strip()) and _is_deeper(lines, index):
            end = _end_of_deeper(lines, index)
            body = "\n".join(_blocks(_dedent(lines[index + 1 : end]), markdown))
            yield f"<dl>\n<dt>{inline(line.strip())}</dt>\n<dd>{body}</dd>\n</dl>"
            index = end
        else:
            end = _end_of_paragraph(lines, index)
            paragraph = " ".join(part.strip() for part in lines[index:end])
            literal = paragraph.endswith("::")
            yield f"<p>{inline(paragraph[:-1] if literal else paragraph)}</p>"
            index = end
            if literal:
                index, block = _literal_block(lines, end)
                yield _code(block)


def _heading(text: str, level: int) -> str:
    return f"<h{level}>{inline(text.strip())}</h{level}>"


def _code(lines: list[str]) -> str:
    body = html.escape("\n".join(_dedent(lines)), quote=False)
    return f"<pre><code>{body}</code></pre>" if body.strip() else ""


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _dedent(lines: list[str]) -> list[str]:
    margin = min((_indent(line) for line in lines if line), default=0)
    return [line[margin:] for line in lines]


def _without_options(lines: list[str]) -> list[str]:
    """A directive's body, without the option lines at its start."""
    start = next((n for n, line in enumerate(lines) if line and not line.lstrip().startswith(":")), len(lines))
    return lines[start:]


def _until_blank(lines: list[str], start: int) -> int:
    return next((n for n in range(start, len(lines)) if not lines[n]), len(lines))


def _is_deeper(lines: list[str], index: int) -> bool:
    return index + 1 < len(lines) and bool(lines[index + 1]) and _indent(lines[index + 1]) > _indent(lines[index])


def _end_of_deeper(lines: list[str], index: int) -> int:
    depth = _indent(lines[index])
    end = next((n for n in range(index + 1, len(lines)) if lines[n] and _indent(lines[n]) <= depth), len(lines))
    while end > index + 1 and not lines[end - 1]:
        end -= 1
    return end


def _end_of_paragraph(lines: list[str], start: int) -> int:
    for n in range(start + 1, len(lines)):
        line = lines[n]
        if not line or _FENCE.match(line) or _BULLET.match(line) or line.lstrip().startswith((">>> ", ".. ")):
            return n
        if n + 1 < len(lines) and _UNDERLINE.match(lines[n + 1]):
            return n
    return len(lines)


def _list_items(lines: list[str], start: int) -> tuple[int, list[str]]:
    items: list[str] = []
    index = start
    while index < len(lines) and lines[index]:
        bullet = _BULLET.match(lines[index])
        if bullet:
            items.append(bullet[2])
        else:
            items[-1] += " " + lines[index].strip()
        index += 1
    return index, items


def _literal_block(lines: list[str], start: int) -> tuple[int, list[str]]:
    while start < len(lines) and not lines[start]:
        start += 1
    if start == len(lines) or not _indent(lines[start]):
        return start, []
    depth = _indent(lines[start])
    end = next((n for n in range(start, len(lines)) if lines[n] and _indent(lines[n]) < depth), len(lines))
    return end, lines[start:end]
