"""HTTP bodies and charsets."""

import gzip
import zlib

import brotli
import pytest
import zstandard

from marin.data.crawl.warc.charset import decode_page
from marin.data.crawl.warc.pages import page_of
from marin.data.crawl.warc.record import RawRecord
from marin.data.crawl.warc.response import BodyError, Response, decode_body, parse_response
from tests.data.crawl.warcs import http

BODY = b"<html><body>" + b"<p>some words that repeat</p>" * 400 + b"</body></html>"
CODERS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.compress,
}


def _decode(body, max_bytes=10_000_000, **headers):
    return decode_body(Response(200, {k.replace("_", "-"): v for k, v in headers.items()}, body), max_bytes=max_bytes)


@pytest.mark.parametrize("label", CODERS)
def test_each_encoding_is_undone_and_a_wrong_label_is_passed_over(label):
    assert _decode(CODERS[label](BODY), content_encoding=label).data == BODY
    wrong = _decode(BODY, content_encoding=label)
    assert (wrong.data, wrong.flags) == (BODY, ("content_encoding_wrong",))


@pytest.mark.parametrize("label", CODERS)
def test_a_bomb_is_stopped_at_the_cap(label):
    bomb = CODERS[label](b"\0" * 20_000_000)
    with pytest.raises(BodyError, match="body_too_large"):
        _decode(bomb, max_bytes=1_000_000, content_encoding=label)


@pytest.mark.parametrize("label", ["gzip", "deflate", "br"])
def test_half_a_compressed_body_is_broken(label):
    data = CODERS[label](bytes(range(256)) * 4 + BODY)
    with pytest.raises(BodyError, match="broken_body"):
        _decode(data[: len(data) // 2], content_encoding=label)


def test_bare_deflate_and_stacked_encodings_are_undone():
    bare = zlib.compressobj(wbits=-15)
    assert _decode(bare.compress(BODY) + bare.flush(), content_encoding="deflate").data == BODY
    assert _decode(brotli.compress(gzip.compress(BODY)), content_encoding="gzip, br").data == BODY


def test_chunks_are_joined_and_kept_up_to_a_break():
    whole = b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\n\r\n"
    assert _decode(whole, transfer_encoding="chunked").data == b"hello world"
    broken = _decode(b"5\r\nhello\r\nzz\r\n world", transfer_encoding="chunked")
    assert (broken.data, broken.flags) == (b"hello", ("chunks_broken",))
    plain = _decode(BODY, transfer_encoding="chunked")
    assert (plain.data, plain.flags) == (BODY, ("transfer_encoding_wrong",))


def test_bare_newlines_and_odd_headers_parse():
    response = parse_response(b"HTTP/1.0 200\nContent-Type: text/html\nno colon here\n\nbody")
    assert response == Response(200, {"content-type": "text/html"}, b"body")
    assert parse_response(b"HTTP/1.1 abc OK\r\n\r\n").status == 0
    assert parse_response(b"GET / HTTP/1.1\r\n\r\n") is None


@pytest.mark.parametrize(
    ("data", "content_type", "text", "charset", "origin", "bad"),
    [
        ("\ufeffé".encode(), "text/html; charset=latin-1", "é", "utf-8", "bom", ()),
        ("привет мир".encode("cp1251"), "text/html; charset=windows-1251", "привет мир", "cp1251", "http", ()),
        ("中文".encode("gbk"), 'text/html; charset="GB2312"', "中文", "gb18030", "http", ()),
        ("é€".encode("cp1252"), "text/html; charset=ISO-8859-1", "é€", "cp1252", "http", ()),
        (b'<meta charset="koi8-r">' + "да".encode("koi8-r"), "text/html", None, "koi8-r", "meta", ()),
        ("é".encode(), "text/html; charset=utf-4", "é", "utf-8", "utf-8", ("utf-4",)),
        (b"ab" * 8, "text/html; charset=utf-16", "ab" * 8, "utf-8", "utf-8", ("utf-16",)),
        ("<p>ab</p>".encode("utf-16-le"), "text/html; charset=utf-16", "<p>ab</p>", "utf-16-le", "http", ()),
        (b"caf\xe9 au lait", "text/html; charset=utf-8", "café au lait", None, "detected", ("utf-8",)),
    ],
)
def test_the_first_candidate_that_decodes_strictly_wins(data, content_type, text, charset, origin, bad):
    decoded = decode_page(data, content_type)
    if text is not None:
        assert decoded.text == text
    if charset is not None:
        assert decoded.charset == charset
    assert (decoded.origin, decoded.bad_labels) == (origin, bad)


def _page(body, *headers, **warc):
    return page_of(
        RawRecord(0, {"warc-type": "response", "warc-target-uri": "<http://a/b c>", **warc}, http(body, *headers))
    )


def test_xhtml_with_an_xml_declaration_is_html():
    body = b'<?xml version="1.0" encoding="utf-8"?>\n<!-- made by a tool -->\n<html xmlns="x"><body>text</body></html>'
    for headers in (["Content-Type: application/xhtml+xml"], ["Content-Type: text/xml"], ["Server: x"]):
        page = _page(body, *headers)
        assert not isinstance(page, str)
        assert page.url == "http://a/b c"


def test_what_the_server_does_not_call_html_is_not_a_page():
    assert _page(b"<html></html>", "Content-Type: text/plain") == "not_html"
    assert _page(b'<?xml version="1.0"?><rss></rss>', "Content-Type: text/xml") == "not_html"
    assert _page(b"%PDF-1.4 binary", "Content-Type: text/html") == "not_html"
    assert _page(b" \n", "Content-Type: text/html") == "empty_payload"


def test_sniffing_takes_linear_time():
    body = b"<!-- x -->" * 200 + b"nothing"
    assert _page(body, "Server: x") == "not_html"


@pytest.mark.parametrize("status", ["2\u00b20", "\u00b9\u00b2\u00b3", "20", "2000", "-20", "2 0"])
def test_a_status_that_is_no_number_costs_its_page_only(status):
    block = f"HTTP/1.1 {status} OK\r\nContent-Type: text/html\r\n\r\n<html>text</html>".encode("latin-1")
    assert page_of(RawRecord(0, {"warc-type": "response"}, block)) == "http_malformed"


def test_a_header_value_may_hold_any_byte_and_still_be_one_line():
    value = bytes(code for code in range(256) if code not in b"\r\n")
    block = b"HTTP/1.1 200 OK\r\nX-Odd: " + value + b"\r\nContent-Type: text/html\r\n\r\n<html>text</html>"
    response = parse_response(block)
    assert set(response.headers) == {"x-odd", "content-type"}
    assert response.headers["x-odd"].encode("latin-1") == value.strip(b" \t\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0")
    assert page_of(RawRecord(0, {"warc-type": "response"}, block)).content == "<html>text</html>"


@pytest.mark.parametrize("separator", [b"\r\n\r\n", b"\n\n"])
def test_the_first_blank_line_ends_the_headers_whatever_the_body_holds(separator):
    body = b"first\n\nsecond\r\n\r\nthird"
    lines = separator[: len(separator) // 2].join([b"HTTP/1.1 200 OK", b"A: b"])
    assert parse_response(lines + separator + body).body == body
    assert parse_response(lines).body == b""


@pytest.mark.parametrize(
    ("headers", "flags"),
    [
        (["Content-Length: 5000"], ("shorter_than_stated",)),
        (["Content-Length: 19"], ()),
        (["Content-Length: 3"], ()),
        (["Content-Length: lots"], ()),
        (["Content-Length: 5000", "Content-Encoding: gzip"], ("content_encoding_wrong",)),
    ],
)
def test_a_body_shorter_than_http_says_is_kept_and_noticed(headers, flags):
    block = http(b"<html>text</html>\r\n", "Content-Type: text/html", *headers)
    page = page_of(RawRecord(0, {"warc-type": "response"}, block))
    assert (page.content, page.flags) == ("<html>text</html>\r\n", flags)
