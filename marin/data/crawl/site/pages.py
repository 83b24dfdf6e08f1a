"""The pages of the site: paths of one package's host to HTML bodies.

Bodies hold nothing of the machine, port, time or folder; they follow from the package's files alone.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote, unquote

from marin.data.crawl.site.catalogue import PackageFiles
from marin.data.crawl.site.docstrings import ClassDocs, Entry
from marin.data.crawl.site.markup import inline, render

DOMAIN = "docs.invalid"
ROBOTS = "User-agent: *\nDisallow: /search\nDisallow: /print/\n"
DISALLOWED = ("/search", "/print/")

_MODULES_A_PAGE = 60
_LICENCES_ON_INDEX = 12
_NEIGHBOURS = 6
_CLASS_PAGE = 2000
_FUNCTION_PAGE = 2500


@dataclass(frozen=True)
class Page:
    """One rendered answer: its media type and body."""

    content_type: str
    body: bytes


def host_of(package: str) -> str:
    """The host name that a package's pages have."""
    return f"{package}.{DOMAIN}"


class PackageSite:
    """The pages of one package, rendered when they are asked for."""

    def __init__(self, files: PackageFiles, hosts: Iterable[str]) -> None:
        self._files = files
        self._hosts = tuple(sorted(hosts))
        self._title = f"{files.name} {files.version}"

    def page(self, path: str) -> Page | None:
        """The page at a path, or None when there is none."""
        path = unquote(path.partition("?")[0])
        if path == "/robots.txt":
            return Page("text/plain; charset=utf-8", ROBOTS.encode())
        rendered = self._route(path)
        if rendered is None:
            return None
        return Page("text/html; charset=utf-8", rendered.encode("utf-8", "replace"))

    def _route(self, path: str) -> str | None:
        if path == "/":
            return self._index()
        if path == "/readme.html":
            return self._document("Read me", render(self._files.readme, markdown=True)) if self._files.readme else None
        if path == "/licences.html":
            return self._document("Licences", _links(map(self._licence_link, self._files.licences)))
        if path == "/search":
            return self._document("Search", "<p>Search needs a script.</p>")
        kind, _, name = path.removeprefix("/").removesuffix(".html").partition("/")
        if kind == "contents" and name.isdigit():
            return self._contents(int(name))
        if kind in ("module", "print"):
            return self._module(name)
        if kind == "class":
            return self._class(name)
        if kind == "function":
            return self._function(name)
        if kind == "licence" and name in self._files.licence_files:
            text = self._files.licence(name)
            return self._document(name.rpartition("/")[2], f"<pre>{html.escape(text, quote=False)}</pre>")
        return None

    def _index(self) -> str:
        files = self._files
        count = -(-len(files.modules) // _MODULES_A_PAGE)
        contents = [_link(f"/contents/{n + 1}.html", f"Modules, part {n + 1}") for n in range(count)]
        licences = [self._licence_link(name) for name in files.licences[:_LICENCES_ON_INDEX]]
        related = [_link(f"http://{host}/", host.partition(".")[0]) for host in self._hosts if self._is_related(host)]
        sections = [
            f"<p>{inline(files.summary)}</p>",
            f"<p>{_link('/readme.html', 'Read me')}</p>" if files.readme else "",
            f"<h2>Contents</h2>{_links(contents)}",
            f"<h2>Licences</h2>{_links([*licences, _link('/licences.html', 'All licences')])}" if licences else "",
            f"<h2>Related packages</h2>{_links(related)}" if related else "",
        ]
        return self._document(f"{self._title} documentation", "\n".join(filter(None, sections)))

    def _is_related(self, host: str) -> bool:
        return host.removesuffix(f".{DOMAIN}") in self._files.requirements

    def _contents(self, number: int) -> str | None:
        names = self._files.modules[(number - 1) * _MODULES_A_PAGE : number * _MODULES_A_PAGE]
        if not names or number < 1:
            return None
        return self._document(f"Modules, part {number}", _links(self._module_link(name) for name in names))

    def _module(self, name: str) -> str | None:
        docs = self._files.docs(name) if name in self._files.modules else None
        if docs is None:
            return None
        parts = [render(docs.doc)]
        own_page = [entry for entry in docs.functions if len(entry.doc) >= _FUNCTION_PAGE]
        own_page_classes = [found for found in docs.classes if found.size >= _CLASS_PAGE]
        if own_page_classes:
            links = [_link(f"/class/{name}.{found.entry.name}.html", found.entry.name) for found in own_page_classes]
            parts.append(f"<h2>Classes</h2>{_links(links)}")
        if own_page:
            links = [_link(f"/function/{name}.{entry.name}.html", entry.name) for entry in own_page]
            parts.append(f"<h2>Functions in detail</h2>{_links(links)}")
        parts += [_class_section(found) for found in docs.classes if found.size < _CLASS_PAGE]
        parts += [_entry(entry, "h3") for entry in docs.functions if len(entry.doc) < _FUNCTION_PAGE]
        return self._document(f"Module {name}", "\n".join(filter(None, parts)), module=name)

    def _class(self, name: str) -> str | None:
        module, _, short = name.rpartition(".")
        docs = self._files.docs(module) if module in self._files.modules else None
        found = next((c for c in docs.classes if c.entry.name == short), None) if docs else None
        return self._document(f"Class {name}", _class_section(found), module=module) if found else None

    def _function(self, name: str) -> str | None:
        module, _, short = name.rpartition(".")
        docs = self._files.docs(module) if module in self._files.modules else None
        found = next((entry for entry in docs.functions if entry.name == short), None) if docs else None
        return self._document(f"Function {name}", _entry(found, "h2"), module=module) if found else None

    def _module_link(self, name: str) -> str:
        return _link(f"/module/{name}.html", name)

    def _licence_link(self, name: str) -> str:
        return _link(f"/licence/{name}", name)

    def _document(self, title: str, body: str, *, module: str | None = None) -> str:
        """The frame that all pages share: head, navigation, neighbours and footer."""
        breadcrumb = [_link("/", self._files.name)]
        neighbours = ""
        if module is not None:
            breadcrumb.append(self._module_link(module))
            at = self._files.modules.index(module)
            near = self._files.modules[max(0, at - _NEIGHBOURS) : at + _NEIGHBOURS + 1]
            links = _links(self._module_link(name) for name in near if name != module)
            printable = _link(f"/print/{module}.html", "Print this page")
            neighbours = f'<aside class="sidebar"><h4>Nearby modules</h4>{links}<p>{printable}</p></aside>'
        licences = self._files.licences
        licence = f" | {_link(f'/licence/{licences[0]}', 'Licence')}" if licences else ""
        return (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f"<title>{html.escape(title)} - {html.escape(self._title)}</title>\n"
            "<style>body { font-family: sans-serif; margin: 2em } nav ul { display: inline }</style>\n</head>\n<body>\n"
            '<header class="site-header"><nav class="navbar"><ul>'
            f"<li>{_link('/', 'Home')}</li><li>{_link('/licences.html', 'Licences')}</li>"
            f"<li>{_link('/search?q=' + quote(title), 'Search')}</li></ul></nav></header>\n"
            f'<nav class="breadcrumb">{" &rsaquo; ".join(breadcrumb)}</nav>\n{neighbours}\n'
            f'<main id="content">\n<article>\n<h1>{html.escape(title)}</h1>\n{body}\n</article>\n</main>\n'
            f'<footer class="footer"><p>Documentation of {html.escape(self._title)}, made from the installed package. '
            f"All rights belong to its authors.{licence}</p></footer>\n</body>\n</html>\n"
        )


def _class_section(found: ClassDocs) -> str:
    return "\n".join([_entry(found.entry, "h2"), *(_entry(method, "h3") for method in found.methods)])


def _entry(entry: Entry, level: str) -> str:
    signature = f"<pre><code>{html.escape(entry.signature, quote=False)}</code></pre>"
    return f"<section>\n<{level}>{html.escape(entry.name)}</{level}>\n{signature}\n{render(entry.doc)}\n</section>"


def _link(target: str, label: str) -> str:
    if target.startswith("/"):
        path, _, query = target.partition("?")
        target = quote(path, safe="/+-._~") + (f"?{query}" if query else "")
    return f'<a href="{html.escape(target)}">{html.escape(label)}</a>'


def _links(links: Iterable[str]) -> str:
    return "<ul>\n" + "\n".join(f"<li>{link}</li>" for link in links) + "\n</ul>"
