"""What the extractors keep of a page."""

import time

import pytest

from marin.data.crawl.extraction.extractors import extractor, nesting_depth, strip_tags
from marin.data.crawl.extraction.lists import deepen_text_lists

PROSE = "<p>" + "The council met again to speak of the bridge, and it was late. " * 5 + "</p>"


def _page(content):
    return (
        "<html><head><title>t</title><script>var hidden = 1;</script></head><body>"
        '<nav><ul><li><a href="/">Home page</a></li><li><a href="/a">All about us</a></li></ul></nav>'
        f"<main><article><h1>The bridge</h1>{PROSE}{content}{PROSE}</article></main>"
        '<footer class="footer"><p>All rights reserved</p></footer></body></html>'
    )


def _text(content):
    return extractor("resiliparse")(_page(content))


def test_navigation_scripts_and_footers_are_left_out():
    text = _text("")
    assert "The bridge" in text
    assert "the council met".lower() in text.lower()
    assert not any(part in text for part in ("Home page", "All rights reserved", "hidden"))


def test_code_keeps_its_lines_and_indentation():
    text = _text("<pre><code>def f(x):\n    if x &lt; 2:\n        return x\n</code></pre>")
    assert "def f(x):\n    if x < 2:\n        return x" in text


@pytest.mark.parametrize("kind", ["ul", "ol"])
def test_lists_of_text_are_kept_with_their_items_apart(kind):
    items = "".join(f"<li>item number {n} of the <a href='/x'>long</a> list of things</li>" for n in range(3))
    lines = [line.strip() for line in _text(f"<{kind}>{items}</{kind}>").splitlines()]
    assert [line for line in lines if "item number 1" in line] in (
        ["• item number 1 of the long list of things"],
        ["2. item number 1 of the long list of things"],
    )


def test_lists_of_links_are_taken_for_navigation():
    links = "".join(f'<li><a href="/{n}">Another story number {n}</a></li>' for n in range(5))
    assert "Another story" not in _text(f"<ul>{links}</ul>")


def test_definitions_and_tables_are_kept():
    text = _text(
        "<dl><dt>x : int</dt><dd>The <em>first</em> one.</dd></dl><table><tr><td>a1</td><td>b1</td></tr></table>"
    )
    assert "The first one." in text
    assert "a1" in text


def test_nested_lists_are_moved_as_one():
    html = "<ul><li>outer text that is long<ul><li>inner text</li></ul></li></ul><p>after</p>"
    assert deepen_text_lists(html) == "<div>" * 8 + html.removesuffix("<p>after</p>") + "</div>" * 8 + "<p>after</p>"
    assert deepen_text_lists("<ul><li>never closed and long enough") == "<ul><li>never closed and long enough"
    assert deepen_text_lists("</ul></ul>text") == "</ul></ul>text"


@pytest.mark.parametrize(
    "html", ["<ul>" * 100_000, "<ul><a>x" * 50_000 + "</ul>", "<a " * 300_000, "<ul><a></ul>" * 50_000]
)
def test_odd_markup_takes_linear_time(html):
    started = time.process_time()
    deepen_text_lists(html)
    nesting_depth(html, 512)
    strip_tags(html)
    assert time.process_time() - started < 5


def test_depth_counts_what_is_open_and_ignores_what_closes_itself():
    assert nesting_depth("<div>" * 600 + "</div>" * 600, 500) == 501
    assert nesting_depth("<br><p>x<li>y<img/>" * 600, 500) == 0
    assert nesting_depth("<div><b>x</b></div>" * 600, 500) == 2


def test_stripping_keeps_text_and_drops_scripts():
    html = "<body><style>p{}</style><p>one &amp; two</p><!-- no --><script>x()</script><div>three</div></body>"
    assert strip_tags(html).split() == ["one", "&", "two", "three"]


def test_the_depth_of_a_page_with_an_endless_tag_is_found_at_once():
    assert nesting_depth("<b>" * 20 + "<" + "a" * 1_000_000, 10) == 11
    assert nesting_depth("<b>" * 5 + "<" * 20 + "a" * 1_000_000, 10) == 5
