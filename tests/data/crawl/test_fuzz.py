"""Bounded fuzzing of reader and extractor: no crash, no hang, and no record that is in no counter or in two."""

import gzip
import io
import time
from collections import Counter

import pytest
import zstandard
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from marin.data.crawl.extraction.blocks import TooDeepError
from marin.data.crawl.extraction.extractors import extractor, strip_tags
from marin.data.crawl.warc.charset import decode_page
from marin.data.crawl.warc.pages import WebPage, page_of
from marin.data.crawl.warc.record import RawRecord
from marin.data.crawl.warc.records import FileReport, read_records
from marin.data.crawl.warc.response import BodyError, Response, decode_body, parse_response
from tests.data.crawl.warcs import html_page, http, page_record, record, warcinfo

SECONDS = 5.0
FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])

RECORDS = [
    warcinfo(),
    *(page_record(f"page{n}") for n in range(4)),
    record(b"", kind="metadata", content_type="application/warc-fields"),
    record(http(gzip.compress(html_page("zipped").encode()), "Content-Type: text/html", "Content-Encoding: gzip")),
    record(http(b"", status="204 No Content")),
]
PACKED = {
    "plain": b"".join(RECORDS),
    "gzip a record": b"".join(gzip.compress(item, mtime=0) for item in RECORDS),
    "gzip as a whole": gzip.compress(b"".join(RECORDS), mtime=0),
    "zstd a record": b"".join(zstandard.ZstdCompressor().compress(item) for item in RECORDS),
}


def _outcomes(data):
    """What became of each record; fails when it takes too long or the reader's own count differs."""
    report = FileReport()
    started = time.process_time()
    outcomes = []
    for item in read_records(lambda: io.BytesIO(data), report):
        page = page_of(item)
        outcomes.append("page" if isinstance(page, WebPage) else page)
    assert time.process_time() - started < SECONDS
    assert report.records == len(outcomes)
    assert outcomes.count("damaged") == len(report.damaged)
    assert ("truncated" in outcomes) == report.truncated
    assert all(isinstance(outcome, str) and outcome for outcome in outcomes)
    return outcomes


@st.composite
def mangled(draw):
    """A WARC in some packaging with bytes changed, cut out, doubled or put in."""
    data = bytearray(PACKED[draw(st.sampled_from(sorted(PACKED)))])
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        size = draw(st.sampled_from([1, 2, 4, 16, 100, 1000]))
        kind = draw(st.sampled_from(["change", "cut", "double", "insert", "end"]))
        if kind == "change":
            data[at : at + size] = draw(st.binary(min_size=0, max_size=size))
        elif kind == "cut":
            del data[at : at + size]
        elif kind == "double":
            data[at:at] = data[at : at + size]
        elif kind == "insert":
            data[at:at] = draw(
                st.sampled_from([b"\r\n", b"WARC/1.0\r\n", b"\x1f\x8b\x08", b"\0" * 9, b"\r\n\r\n", b":"])
            )
        else:
            del data[at:]
    return bytes(data)


@FUZZ
@given(mangled())
def test_a_mangled_archive_is_read_to_its_end_and_every_record_counted_once(data):
    outcomes = _outcomes(data)
    assert outcomes or not data.strip(b"\0\r\n")


@FUZZ
@given(st.binary(max_size=3000), st.sampled_from([b"", b"WARC/1.0\r\n", b"\x1f\x8b\x08\x00", b"\x28\xb5\x2f\xfd"]))
@example(b"\r\nContent-Length: 99999999999999999999\r\n\r\n", b"WARC/1.0")
@example(b"Content-Length: -5\r\n\r\nabc\r\n\r\n", b"WARC/1.0\r\n")
@example(b"\xff" * 100, b"WARC/1.0\r\n")
@example(b"WARC-Type: response\r\nContent-Length: 10", b"WARC/1.0\r\n")
def test_any_bytes_are_read_to_their_end(data, head):
    _outcomes(head + data)


@FUZZ
@given(st.lists(st.integers(0, len(RECORDS) - 1), max_size=12), st.sampled_from(sorted(PACKED)), st.data())
def test_every_record_of_a_whole_archive_is_in_the_counter_it_belongs_to(order, packaging, data):
    names = ["warcinfo", "page", "page", "page", "page", "metadata", "page", "empty_payload"]
    chosen = [RECORDS[index] for index in order]
    pack = {
        "plain": b"".join,
        "gzip a record": lambda items: b"".join(map(gzip.compress, items)),
        "gzip as a whole": lambda items: gzip.compress(b"".join(items)),
        "zstd a record": lambda items: b"".join(map(zstandard.ZstdCompressor().compress, items)),
    }[packaging]
    assert Counter(_outcomes(pack(chosen))) == Counter(names[index] for index in order)


HEADERS = st.dictionaries(
    st.sampled_from(["content-encoding", "transfer-encoding", "content-type", "content-length"]),
    st.sampled_from(
        [
            "gzip",
            "br",
            "deflate",
            "zstd",
            "chunked",
            "gzip, br",
            "identity",
            "text/html; charset=utf-16",
            "x" * 50,
            "-1",
        ]
    ),
)
BODIES = st.one_of(
    st.binary(max_size=2000),
    st.binary(max_size=2000).map(gzip.compress),
    st.binary(max_size=2000).map(lambda data: b"%x\r\n" % len(data) + data + b"\r\n0\r\n\r\n"),
    st.tuples(st.binary(min_size=9, max_size=900), st.integers(1, 60)).map(
        lambda pair: gzip.compress(pair[0])[: -pair[1]]
    ),
    st.binary(max_size=2000).map(zstandard.ZstdCompressor().compress),
)


@FUZZ
@given(HEADERS, BODIES)
def test_any_body_is_decoded_or_has_a_reason(headers, body):
    try:
        outcome = decode_body(Response(200, headers, body), max_bytes=10_000).data
    except BodyError as error:
        outcome = str(error)
    assert isinstance(outcome, bytes) or outcome in ("broken_body", "body_too_large")


@FUZZ
@given(st.binary(max_size=400), st.binary(max_size=200))
def test_any_response_gives_a_page_or_a_reason(head, body):
    block = b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n" + body
    assert parse_response(block) is not None
    assert isinstance(page_of(RawRecord(0, {"warc-type": "response"}, block)), (WebPage, str))


@FUZZ
@given(
    st.binary(max_size=2000), st.sampled_from(["", "utf-8", "utf-16", "gb18030", "shift_jis", "utf-7", "hex", "idna"])
)
def test_any_bytes_become_text_that_can_be_stored(data, label):
    decoded = decode_page(data, f"text/html; charset={label}" if label else "")
    decoded.text.encode("utf-8", "surrogatepass")


MARKUP = st.lists(
    st.sampled_from(
        [
            *(
                "<div>",
                "</div>",
                "<p>",
                "</p>",
                "<ul>",
                "<li>",
                "</ul>",
                "<table>",
                "<tr>",
                "<td>",
                "</table>",
                "<pre>",
            ),
            *("</pre>", "<a href='/x'>", "</a>", "<br>", "<h1>", "</h1>", "<!--", "-->", "<script>", "</script>", "<"),
            *(
                ">",
                "&amp;",
                "&",
                "\0",
                '"',
                "'",
                "<svg>",
                "</svg>",
                "<math>",
                "<template>",
                "</template>",
                "<b>",
                "</b>",
            ),
            *(
                "<p class='related'>",
                "<div id=comments>",
                "<![CDATA[",
                "]]>",
                "<?xml ?>",
                "<textarea>",
                "<select>",
                "漢字",
            ),
            *("a sentence of some length, which counts as prose. ", "word ", "\n", "\u2028", "\ud800", "<frameset>"),
            *("<noscript>", "<plaintext>", "<title>", "</body>", "<body hidden>", "<html class='nav'>", "<ol>", "<dd>"),
        ]
    ),
    max_size=120,
).map("".join)


@pytest.mark.parametrize("run", [extractor("resiliparse", 512), strip_tags], ids=["scorer", "strip tags"])
@FUZZ
@given(MARKUP)
def test_any_markup_becomes_text_in_time(run, html):
    started = time.process_time()
    text = run(html)
    assert time.process_time() - started < SECONDS
    assert isinstance(text, str)
    assert len(text) <= 4 * len(html) + 100


@FUZZ
@given(st.text(max_size=3000))
def test_any_text_becomes_text(html):
    try:
        assert isinstance(extractor("resiliparse", 512)(html), str)
    except TooDeepError:
        assert html.count("<") > 512
