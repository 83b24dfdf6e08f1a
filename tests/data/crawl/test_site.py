"""The embedded site: docstrings, markup, pages and the crawl of them."""

import contextlib
import http.client
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from fastwarc.warc import ArchiveIterator

from marin.data.crawl.config import embedded_crawl
from marin.data.crawl.crawler import crawl, links
from marin.data.crawl.embedded import crawl_site, site_server
from marin.data.crawl.fetch import Fetched, Fetcher
from marin.data.crawl.site.catalogue import package_files
from marin.data.crawl.site.docstrings import module_docs
from marin.data.crawl.site.markup import render
from marin.data.crawl.site.pages import DISALLOWED, PackageSite, host_of
from marin.data.crawl.site.server import Site, SiteServer

SOURCE = '''
"""What the module is for."""

def visible(a: int, *rest, b="x") -> str:
    """Says what it does."""

def _hidden():
    """Nobody should read this."""

def silent(): ...

class Thing(dict):
    """A thing."""

    def act(self):
        """Acts."""

raise RuntimeError("must never be imported")
'''


def test_docstrings_are_read_without_importing():
    docs = module_docs(SOURCE.encode())
    assert docs is not None
    assert docs.doc == "What the module is for."
    assert [(entry.signature, entry.doc) for entry in docs.functions] == [
        ("visible(a: int, *rest, b='x') -> str", "Says what it does.")
    ]
    assert docs.classes[0].entry.signature == "class Thing(dict)"
    assert [method.name for method in docs.classes[0].methods] == ["Thing.act"]
    assert module_docs(b"def broken(:") is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Title\n=====\n\ntwo\nlines", "<h3>Title</h3>\n<p>two lines</p>"),
        ("a <b> & ``c<d``", "<p>a &lt;b&gt; &amp; <code>c&lt;d</code></p>"),
        ("- one\n- two\n  more", "<ul>\n<li>one</li>\n<li>two more</li>\n</ul>"),
        (">>> f(1)\n2\n\nafter", "<pre><code>&gt;&gt;&gt; f(1)\n2</code></pre>\n<p>after</p>"),
        ("Like so::\n\n    x = 1\n      y\n\nend", "<p>Like so:</p>\n<pre><code>x = 1\n  y\n</code></pre>\n<p>end</p>"),
        ("Args:\n    x: the input", "<h4>Args</h4>\n<p>x: the input</p>"),
        ("x : int\n    The input.", "<dl>\n<dt>x : int</dt>\n<dd><p>The input.</p></dd>\n</dl>"),
        (".. image:: a.png\n   :target: b\n\nafter", "<p>after</p>"),
        (".. note:: Mind\n   the gap", '<p class="admonition">Note: Mind</p>\n<p>the gap</p>'),
        (".. code-block:: python\n   :linenos:\n\n   x = 1\n\nafter", "<pre><code>x = 1</code></pre>\n<p>after</p>"),
        ("[site](http://a.b/c)", '<p><a href="http://a.b/c" rel="external">site</a></p>'),
    ],
)
def test_markup_becomes_html(text, expected):
    assert render(text) == expected


def test_readme_markdown_loses_its_raw_html_and_badges():
    text = "# Title\n<p align='center'>logo</p>\n![badge](http://x/y.svg)\n\n```python\nx = '<b>'\n```"
    assert render(text, markdown=True).startswith("<h2>Title</h2>\n<p>logo")
    assert "badge" not in render(text, markdown=True)


def test_markup_ends_on_any_text():
    for path in sorted(Path(sys.modules["email"].__file__).parent.glob("*.py")):
        render(path.read_text("utf-8"))
        render(path.read_text("utf-8"), markdown=True)


def test_pages_tell_nothing_of_the_machine():
    files = package_files("warcio")
    site = PackageSite(files, ["warcio"])
    bodies = [site.page(path) for path in ("/", "/readme.html", "/contents/1.html", "/licences.html")]
    bodies += [site.page(f"/module/{name}.html") for name in files.modules]
    assert None not in bodies
    for page in bodies:
        assert str(Path(sys.prefix)).encode() not in page.body
        assert b"127.0.0.1" not in page.body
    assert site.page("/module/no.such.html") is None
    assert site.page("/../../etc/passwd") is None
    assert site.page("/licence/../../../etc/passwd") is None


def test_a_package_that_is_not_installed_is_named():
    with pytest.raises(LookupError, match="no-such-package"):
        package_files("no-such-package")


@contextlib.contextmanager
def _served(packages):
    server = SiteServer(Site(packages))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def _crawl(packages, connections=3, max_pages=60, max_bytes=10**9):
    with _served(packages) as server:
        fetcher = Fetcher(("127.0.0.1", server.port), max_body=10**7)
        fetched = []
        counts = crawl(
            map(host_of, packages),
            fetcher,
            max_pages=max_pages,
            max_bytes=max_bytes,
            max_page_bytes=10**7,
            connections=connections,
            on_fetched=fetched.append,
        )
        fetcher.close()
        return fetched, counts, server.site.requests


def test_the_crawl_obeys_robots_and_fetches_nothing_twice():
    fetched, counts, requests = _crawl(["warcio", "psutil"])
    assert counts.skipped["robots"] > 0
    assert not [path for path in requests if path.startswith(DISALLOWED)]
    urls = Counter(page.url for page in fetched)
    assert max(urls.values()) == 1
    assert {page.status for page in fetched} == {200}
    assert all(page.url.partition("/")[2].lstrip("/").split("/")[0].endswith(".docs.invalid") for page in fetched)


def test_the_pages_do_not_depend_on_connections():
    one, _, _ = _crawl(["fsspec", "warcio"], connections=1, max_pages=40)
    six, _, _ = _crawl(["warcio", "fsspec"], connections=6, max_pages=40)
    assert [(page.url, page.body) for page in one] == [(page.url, page.body) for page in six]
    assert len(one) == 42


def test_the_bounds_hold():
    fetched, counts, _ = _crawl(["fsspec"], max_pages=5)
    assert counts.pages == 5
    assert len(fetched) == 6
    _, counts, _ = _crawl(["fsspec"], max_bytes=30_000)
    assert counts.body_bytes <= 30_000
    assert counts.skipped["max_bytes"] == 1


def test_links_are_absolute_in_one_spelling_and_once():
    body = b"""<a href="b.html#part">x</a><a href="/b.html">again</a><a href="https://secure/">s</a>
    <a href="mailto:x">m</a><a href="HTTP://Other.example">o</a>
    <a href="/a b?q=1 2">sp</a><a rel="nofollow" href="/n">n</a><a>none</a>"""
    page = Fetched("http://site.example/a.html", 200, "OK", (), body, "", ())
    assert list(links(page)) == [
        "http://site.example/b.html",
        "http://other.example/",
        "http://site.example/a%20b?q=1%202",
    ]


def test_each_answer_is_one_write_with_no_clock_in_it():
    with _served(["warcio"]) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        answers = []
        for _ in range(2):
            connection.request("GET", "/", headers={"Host": host_of("warcio")})
            response = connection.getresponse()
            answers.append((response.getheaders(), response.read()))
        connection.close()
    assert answers[0] == answers[1]
    assert [name for name, _ in answers[0][0]] == ["Server", "Content-Type", "Content-Length"]


def test_the_server_process_ends_with_its_block():
    with site_server(["warcio"]) as (host, port):
        connection = http.client.HTTPConnection(host, port, timeout=30)
        connection.request("GET", "/robots.txt", headers={"Host": host_of("warcio")})
        assert connection.getresponse().status == 200
        connection.close()
    with pytest.raises(OSError):
        http.client.HTTPConnection(host, port, timeout=5).connect()


def test_the_archive_is_warc_1_1_with_digests_requests_and_bounded_files(tmp_path):
    @contextlib.contextmanager
    def open_file(name):
        with open(tmp_path / name, "wb") as stream:
            yield stream

    config = embedded_crawl("docs", ["warcio", "psutil"], max_pages=25, warc_bytes=20_000)
    files, counts = crawl_site(config.embedded, config.source, open_file)
    assert counts.pages == 25
    assert len(files) > 1
    kinds = Counter()
    for file in files:
        path = tmp_path / file.name
        assert path.stat().st_size == file.size
        records = list(ArchiveIterator(path.open("rb"), parse_http=False, verify_digests=False))
        assert path.read_bytes()[:2] == b"\x1f\x8b"
        kinds.update(str(record.record_type) for record in records)
        assert len({record.stream_pos for record in records}) == len(records)
    for file in files:
        for record in ArchiveIterator((tmp_path / file.name).open("rb")):
            if str(record.record_type) == "response":
                assert record.verify_payload_digest()
    # 25 pages and a robots.txt for each of two hosts.
    assert kinds == {"warcinfo": len(files), "response": 27, "request": 27}
