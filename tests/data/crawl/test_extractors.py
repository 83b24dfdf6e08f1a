"""What the extractors keep of a page."""

import contextlib
import time

import pytest

from marin.data.crawl.extraction.blocks import TooDeepError
from marin.data.crawl.extraction.extractors import extractor, nesting_depth, strip_tags

PROSE = "<p>" + "The council met again to speak of the bridge, and it was late. " * 5 + "</p>"


def _page(content):
    return (
        "<html><head><title>t</title><script>var hidden = 1;</script></head><body>"
        '<nav><ul><li><a href="/">Home page</a></li><li><a href="/a">All about us</a></li></ul></nav>'
        f"<main><article><h1>The bridge</h1>{PROSE}{content}{PROSE}</article></main>"
        '<footer class="footer"><p>All rights reserved</p></footer></body></html>'
    )


def _text(content):
    return extractor("resiliparse", 512)(_page(content))


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


def test_nested_lists_are_indented_and_numbered_by_their_own_list():
    inner = "<ul><li>inner one that is listed too</li></ul>"
    items = f"<ol><li>first of the things that are listed here</li><li>second{inner}</li>"
    lines = _text(items + "<li>third and last</li></ol>").splitlines()
    assert [line for line in lines if line.startswith(" ")] == [
        "  1. first of the things that are listed here",
        "  2. second",
        "    • inner one that is listed too",
        "  3. third and last",
    ]


def test_a_table_row_is_a_line_even_where_its_first_cell_is_a_link():
    rows = "".join(
        f"<tr><td><a href='/{n}'>name{n}</a></td><td>what the name number {n} stands for</td></tr>" for n in range(3)
    )
    text = _text(f"<table>{rows}</table>")
    assert "name0 | what the name number 0 stands for\nname1 | what the name number 1 stands for\nname2 | " in text


def test_definitions_follow_their_terms():
    terms = "".join(
        f"<dt id='x{n}'>term{n}</dt><dd><p>what term {n} means to a reader of this page</p></dd>" for n in (1, 2)
    )
    assert "term1\n\nwhat term 1 means to a reader of this page\n\nterm2\n\nwhat term 2" in _text(f"<dl>{terms}</dl>")


def test_a_heading_stays_with_what_it_heads_and_goes_with_it():
    kept = _text("<h2>Of the tolls<a class='headerlink' href='#tolls'>¶</a></h2>")
    assert "\n\nOf the tolls\n\nThe council met" in kept
    gone = _text("<h2>More stories</h2><ul>" + "<li><a href='/x'>another story</a></li>" * 4 + "</ul><h2>After</h2>")
    assert "More stories" not in gone
    assert "After" in gone


@pytest.mark.parametrize(
    "markup",
    [
        "<p hidden>unseen words</p>",
        "<div style='color:red; display: none'><p>unseen words</p></div>",
        "<div aria-hidden='true'>unseen words</div>",
        "<template><p>unseen words</p></template>",
        "<noscript><p>unseen words</p></noscript>",
        "<select><option>unseen words</option></select>",
        "<!-- <p>unseen words</p> -->",
        "<SCRIPT>document.write('<p>unseen words</p>')</SCRIPT>",
        "<script><!-- unseen words </p> --></script>",
        "<svg><text>unseen words</text></svg>",
        "<textarea>unseen words</textarea>",
    ],
)
def test_what_a_reader_does_not_see_is_left_out(markup):
    text = _text(markup)
    assert "unseen" not in text
    assert text.count("The council met") == 10


@pytest.mark.parametrize(
    "markup",
    [
        '<div data-html="<script>"><p>seen words of some length, which are kept as the others are</p></div>',
        "<div data-html='<script>'><p>seen words of some length, which are kept as the others are</p></div>",
        "<!-- <script> --><p>seen words of some length, which are kept as the others are</p>",
        "<p title='a > b'>seen words of some length, which are kept as the others are</p>",
        '<p title="a &gt; b &quot; <c>">seen words of some length, which are kept as the others are</p>',
        "<style>p > a { content: '</p>' }</style><p>seen words of some length, which are kept as the others are</p>",
    ],
)
def test_odd_attributes_and_comments_hide_no_text(markup):
    assert "\n\nseen words of some length, which are kept as the others are\n\n" in _text(markup)


def test_entities_and_spaces_are_what_a_reader_sees():
    text = _text(
        "<p>a &lt;b&gt; &amp;amp; c&nbsp;d \u3000 e<br>next   line of this paragraph, long enough to be kept</p>"
    )
    assert "\n\na <b> &amp; c d e\nnext line of this paragraph, long enough to be kept\n\n" in text


def test_a_page_nested_too_deep_is_refused_in_linear_time():
    html = "<html><body>" + "<ul><li>" * 100_000 + "deep"
    started = time.process_time()
    with pytest.raises(TooDeepError):
        extractor("resiliparse", 512)(html)
    with pytest.raises(TooDeepError):
        extractor("trafilatura", 512)(html)
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    "html",
    [
        "<ul>" * 100_000,
        "<ul><a>x" * 50_000 + "</ul>",
        "<a " * 300_000,
        "<ul><a></ul>" * 50_000,
        "<script>" * 100_000,
        "<!--" * 100_000,
        "<script>x</" * 100_000,
        "<p class='" + "related-" * 100_000 + "'>x",
        "<p>" + "x" * 2_000_000,
        "<p>" + "漢" * 500_000,
        "<p>x" * 100_000,
        "<td>x" * 100_000,
        "<div class=nav>x</div>" * 30_000,
        "&amp;" * 200_000,
    ],
)
def test_odd_markup_takes_linear_time(html):
    started = time.process_time()
    with contextlib.suppress(TooDeepError):
        extractor("resiliparse", 512)(html)
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


def test_what_follows_a_plaintext_tag_is_read_in_linear_time():
    def cost(count):
        html = "<html><body><p>Words before it.</p><plaintext>" + "<textarea>" * count + "<p>Words after it.</p>"
        began = time.process_time()
        extractor("resiliparse", 512)(html)
        return time.process_time() - began

    cost(100)
    assert cost(40_000) < 20 * cost(4_000) + 0.3
    assert "Words in it." in extractor("resiliparse", 512)("<p>Words before it.</p><PlainText><p>Words in it.</p>")
