"""Large WARC files in parts."""

import gzip
import io
import random
from collections import Counter

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.data.crawl.warc.records import FileReport, Span, read_records
from marin.data.crawl.warc.splitting import split_file
from tests.data.crawl.warcs import html_page, http, record, warcinfo


def _records(count=40):
    def page(n):
        noise = " ".join(str(random.Random(f"{n} {m}").random()) for m in range(20 + 37 * n % 300))
        return record(http((html_page(f"page{n}") + noise).encode()), uri=f"http://p{n}.example/")

    return [warcinfo(), *(page(n) for n in range(count))]


PLAIN = b"".join(_records())
GZIP = b"".join(gzip.compress(item, mtime=0) for item in _records())
ZSTD = b"".join(zstandard.compress(item) for item in _records())
DICTIONARY = zstandard.train_dictionary(4096, [item[n : n + 400] for item in _records() for n in range(0, 2000, 400)])


def _skippable(mark, content):
    return bytes([mark]) + b"\x2a\x4d\x18" + len(content).to_bytes(4, "little") + content


def _with_dictionary(content):
    packer = zstandard.ZstdCompressor(dict_data=DICTIONARY)
    frames = [packer.compress(item) for item in _records()]
    return _skippable(0x5D, content) + b"".join(_skippable(0x50, b"index") + frame for frame in frames)


WITH_DICTIONARY = _with_dictionary(DICTIONARY.as_bytes())
KINDS = {"plain": PLAIN, "gzip": GZIP, "zstd": ZSTD, "zstd with a dictionary": WITH_DICTIONARY}


def _spans(data, part_bytes):
    return split_file(lambda: io.BytesIO(data), len(data), part_bytes)


def _read(data, span=Span()):
    report = FileReport()
    return list(read_records(lambda: io.BytesIO(data), report, span)), report


def _read_parts(data, spans):
    parts = [_read(data, span) for span in spans]
    return [record for records, _ in parts for record in records], [report for _, report in parts]


@pytest.mark.parametrize("data", KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("parts", [2, 3, 7, 30, 1000])
def test_the_parts_together_are_the_file(data, parts):
    spans = _spans(data, len(data) // parts)
    assert len(spans) >= min(parts, 20)
    assert (spans[0].begin, spans[-1].end) == (0, None)
    assert [span.end for span in spans[:-1]] == [span.begin for span in spans[1:]]
    records, reports = _read_parts(data, spans)
    assert records == _read(data)[0]
    assert not any(report.crossed or report.truncated or report.damaged for report in reports)


@pytest.mark.parametrize("data", KINDS.values(), ids=KINDS.keys())
def test_parts_are_about_equal(data):
    spans = _spans(data, len(data) // 5)
    sizes = [(span.end or len(data)) - span.begin for span in spans]
    assert max(sizes) < 1.5 * len(data) / 5


@pytest.mark.parametrize(
    "data",
    [
        gzip.compress(PLAIN),
        zstandard.ZstdCompressor().compress(PLAIN),
        _skippable(0x5D, DICTIONARY.as_bytes()) + zstandard.ZstdCompressor(dict_data=DICTIONARY).compress(PLAIN),
        b"no archive " * 10_000,
        gzip.compress(_records()[0])[:40] * 100,
        b"",
    ],
)
def test_a_file_that_cannot_be_read_in_parts_is_one_span(data):
    assert _spans(data, 4000) == [Span()]


def test_a_stream_that_cannot_seek_is_one_span():
    class Pipe(io.BytesIO):
        def seekable(self):
            return False

    assert split_file(lambda: Pipe(GZIP), len(GZIP), 4000) == [Span()]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_damage_in_any_place_loses_no_more_in_parts_than_in_one(data):
    kind = data.draw(st.sampled_from(list(KINDS.values())))
    damaged = bytearray(kind)
    at = data.draw(st.integers(0, len(kind) - 40))
    damaged[at : at + 40] = data.draw(st.binary(min_size=40, max_size=40))
    parts = data.draw(st.integers(2, 12))
    spans = _spans(bytes(damaged), len(damaged) // parts)
    whole, _ = _read(bytes(damaged))
    records, reports = _read_parts(bytes(damaged), spans)
    assert sum(report.records for report in reports) == len(records)
    good = Counter(record.offset for record in records if record.fault is None)
    assert max(good.values(), default=0) <= 1
    assert set(good) >= {record.offset for record in whole if record.fault is None}


def test_an_archive_within_a_record_does_not_hide_the_record_and_is_said():
    inner = b"".join(_records(8))
    outer = [*_records(2), record(http(inner, "Content-Type: application/warc"), uri="http://nested.example/")]
    data = b"".join([*outer, *_records(2)])
    middle = data.index(inner) + len(inner) // 2
    end = data.index(b"WARC/1.0", middle)
    records, reports = _read_parts(data, [Span(0, end), Span(end, None)])
    assert [report.crossed for report in reports] == [True, False]
    assert [record.headers["warc-target-uri"] for record in records if "nested" in str(record.headers)] == [
        "http://nested.example/"
    ]


@pytest.mark.parametrize(
    "content", [DICTIONARY.as_bytes(), zstandard.compress(DICTIONARY.as_bytes())], ids=["plain", "packed"]
)
def test_frames_that_need_the_dictionary_at_the_beginning_are_read(content):
    records, report = _read(_with_dictionary(content))
    assert [(record.headers, record.block) for record in records] == [
        (record.headers, record.block) for record in _read(PLAIN)[0]
    ]
    assert not (report.damaged or report.truncated or report.one_member)


def test_without_its_dictionary_every_frame_is_damaged_and_counted():
    records, report = _read(_with_dictionary(zstandard.compress(b"x" * 100)[:-6]))
    assert {record.fault for record in records} == {"damaged"}
    assert len(report.damaged) == len(records) >= 1
