"""Records of healthy and damaged WARC files."""

import gzip
import io
import random
from collections import Counter

import pytest
import zstandard

from marin.data.crawl.warc.records import FileReport, read_records
from tests.data.crawl.warcs import html_page, http, page_record, record, warcinfo


def _noise(seed, size=3000):
    """Text that does not compress to nothing, so that a member is longer than the damage."""
    return " ".join(str(random.Random(f"{seed} {n}").random()) for n in range(size // 20))


def _records(count=12):
    pages = [http((html_page(f"page{n}") + _noise(n)).encode()) for n in range(count)]
    return [warcinfo(), *(record(page, uri=f"http://p{n}.example/") for n, page in enumerate(pages))]


def _read(data):
    report = FileReport()
    return list(read_records(lambda: io.BytesIO(data), report)), report


def _kinds(records):
    return Counter(record.fault or record.kind for record in records)


PACKAGINGS = {
    "plain": b"".join,
    "gzip per record": lambda records: b"".join(gzip.compress(item) for item in records),
    "gzip as a whole": lambda records: gzip.compress(b"".join(records)),
    "zstd": lambda records: zstandard.ZstdCompressor().compress(b"".join(records)),
    "zstd per record": lambda records: b"".join(zstandard.ZstdCompressor().compress(item) for item in records),
}


@pytest.mark.parametrize("packaging", PACKAGINGS)
def test_every_packaging_gives_the_same_records(packaging):
    expected = [item.split(b"\r\n\r\n", 1)[1][:-4] for item in _records()]
    records, report = _read(PACKAGINGS[packaging](_records()))
    assert [record.block for record in records] == expected
    assert (report.records, report.truncated, report.damaged) == (13, False, [])


@pytest.mark.parametrize("packaging", PACKAGINGS)
def test_a_file_cut_inside_its_last_record_is_truncated_and_loses_that_record_only(packaging):
    data = PACKAGINGS[packaging](_records())
    records, report = _read(data[:-300])
    assert report.truncated
    assert _kinds(records)["truncated"] == 1
    assert _kinds(records)["response"] >= (11 if "zstd" not in packaging else 0)


@pytest.mark.parametrize("seed", range(8))
def test_forty_flipped_bytes_lose_one_record(seed):
    members = [gzip.compress(item) for item in _records()]
    data = bytearray(b"".join(members))
    victim = random.Random(seed).randrange(1, len(members) - 1)
    start = sum(map(len, members[:victim]))
    at = start + random.Random(seed).randrange(20, len(members[victim]) - 60)
    data[at : at + 40] = bytes(byte ^ 0xFF for byte in data[at : at + 40])

    records, report = _read(bytes(data))
    assert _kinds(records) == {"warcinfo": 1, "response": 11, "damaged": 1}
    assert report.damaged == [start]
    assert not report.truncated


def test_damage_in_a_member_head_is_passed_too():
    members = [gzip.compress(item) for item in _records()]
    start = sum(map(len, members[:5]))
    data = bytearray(b"".join(members))
    data[start : start + 10] = b"\xff" * 10
    records, _ = _read(bytes(data))
    assert _kinds(records) == {"warcinfo": 1, "response": 11, "damaged": 1}


def test_a_whole_gzip_file_keeps_what_lies_before_the_damage():
    data = bytearray(gzip.compress(b"".join(_records())))
    middle = len(data) // 2
    data[middle : middle + 40] = b"\xff" * 40
    records, report = _read(bytes(data))
    assert report.truncated
    assert 3 <= _kinds(records)["response"] <= 9


@pytest.mark.parametrize("packaging", ["plain", "gzip per record"])
def test_a_record_without_a_length_is_dropped_and_the_next_one_is_found(packaging):
    broken = page_record("broken").replace(b"Content-Length:", b"Content-Longth:")
    records, report = _read(PACKAGINGS[packaging]([warcinfo(), page_record("a"), broken, page_record("b")]))
    assert [
        record.headers["warc-target-uri"] for record in records if record.kind == "response" and not record.fault
    ] == [
        "http://a.example/",
        "http://b.example/",
    ]
    assert len(report.damaged) == 1


@pytest.mark.parametrize("packaging", ["plain", "gzip per record"])
def test_offsets_are_places_in_the_file_also_behind_damage(packaging):
    parts = [page_record("a"), page_record("broken").replace(b"Content-Length:", b"Content-Longth:"), page_record("b")]
    packed = [PACKAGINGS[packaging]([part]) for part in (*parts, page_record("c"), parts[1], page_record("d"))]
    starts = [sum(map(len, packed[:n])) for n in range(len(packed))]
    records, report = _read(b"".join(packed))
    assert [record.offset for record in records if not record.fault] == [starts[n] for n in (0, 2, 3, 5)]
    assert report.damaged == [starts[1], starts[4]]


@pytest.mark.parametrize("data", [b"", gzip.compress(b"", mtime=0)])
def test_a_file_without_records_is_valid(data):
    assert _read(data) == ([], FileReport())


@pytest.mark.parametrize("data", [b"no archive at all", b"\0" * 200, b"<html></html>" * 50])
def test_a_file_that_is_no_warc_is_one_damaged_record(data):
    records, report = _read(data)
    assert _kinds(records) == {"damaged": 1}
    assert report.damaged == [0]


def test_the_block_length_delimits_whatever_http_says():
    block = http(b"<html><body>all of it</body></html>", "Content-Type: text/html", "Content-Length: 5")
    records, _ = _read(gzip.compress(record(block)))
    assert records[0].block == block


@pytest.mark.parametrize("packaging", ["plain", "gzip per record"])
def test_a_lost_connection_is_an_error_and_not_a_damaged_record(packaging):
    data = PACKAGINGS[packaging](_records(60))

    class Flaky(io.BytesIO):
        def read(self, size=-1):
            if self.tell() > 65_536:
                raise ConnectionResetError("peer went away")
            return super().read(size)

    with pytest.raises(OSError, match="peer went away"):
        list(read_records(lambda: Flaky(data), FileReport()))


@pytest.mark.parametrize(
    ("packaging", "lost"), [("plain", 1), ("gzip per record", 1), ("gzip per record", 2), ("gzip per record", 3)]
)
def test_a_file_that_cannot_be_opened_again_is_an_error_and_no_damaged_record(packaging, lost):
    records = _records()
    records[5] = records[5].replace(b"WARC/1", b"XXXX/1") if packaging == "plain" else records[5]
    data = bytearray(PACKAGINGS[packaging](records))
    opened = 0

    def open_stream():
        nonlocal opened
        opened += 1
        if opened > lost:
            raise ConnectionError("the store does not answer")
        return io.BytesIO(data)

    with pytest.raises(ConnectionError, match="does not answer"):
        list(read_records(open_stream, FileReport()))
