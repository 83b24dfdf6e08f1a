"""Archives and pages that are damaged at random, and what must hold of reading them.

Shared by the tests, which look at a few, and by the soak campaign, which looks at as many as there is time for.
"""

from __future__ import annotations

import gzip
import io
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import zstandard

from marin.data.crawl.warc.pages import page_of
from marin.data.crawl.warc.record import RawRecord
from marin.data.crawl.warc.records import FileReport, Span, read_records
from marin.data.crawl.warc.splitting import split_file
from tests.data.crawl.warcs import html_page, http, record, warcinfo

SECONDS = 5.0
PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": lambda item: gzip.compress(item, mtime=0),
    "zstd": zstandard.ZstdCompressor(write_checksum=True).compress,
    "gzip as a whole": bytes,
    "zstd as a whole": bytes,
}
_JUNK = (
    b"\r\n",
    b"WARC/1.0\r\n",
    b"\x1f\x8b\x08",
    b"\x28\xb5\x2f\xfd",
    b"\0" * 9,
    b"\r\n\r\n",
    b":",
    b"Content-Length: 9\r\n",
)
_APART = 1200
_BORDER = 6
"""Bytes around a border between records that belong to both."""


@dataclass(frozen=True)
class Archive:
    """An archive, and where each of its records lies in it; of one that is packed as a whole nobody knows."""

    packing: str
    data: bytes
    records: tuple[bytes, ...]
    borders: tuple[int, ...]


def archive(choice: random.Random, packing: str) -> Archive:
    """An archive of some records of all kinds and sizes."""
    records = [warcinfo()]
    for number in range(choice.randint(2, 9)):
        noise = " ".join(str(choice.random()) for _ in range(choice.choice((0, 10, 200, 2000))))
        page = http((html_page(f"page{number}", paragraphs=choice.randint(1, 6)) + noise).encode())
        records.append(record(page, uri=f"http://p{number}.example/"))
        if choice.random() < 0.3:
            records.append(record(b"note: %d\r\n" % number, kind="metadata", uri=f"http://m{number}.example/"))
    packed = [PACKINGS[packing](item) for item in records]
    borders = tuple(sum(map(len, packed[:number])) for number in range(len(packed) + 1))
    data = b"".join(packed)
    if packing == "gzip as a whole":
        data = gzip.compress(data, mtime=0)
    if packing == "zstd as a whole":
        data = zstandard.ZstdCompressor(write_checksum=True).compress(data)
    return Archive(packing, data, tuple(records), borders)


def damaged(choice: random.Random, whole: Archive, times: int) -> tuple[bytes, list[set[int]]]:
    """The bytes of an archive with changes in some places, and the records that each of them touches."""
    data = bytearray(whole.data)
    touched: list[set[int]] = []
    last = 2 * len(data)
    # From the back, so that the places of what comes before do not move; apart, so that none reaches into another.
    for at in sorted((choice.randrange(len(data)) for _ in range(times)), reverse=True):
        if last - at < _APART:
            continue
        last = at
        size = choice.choice((1, 2, 4, 16, 40, 100, 1000))
        match choice.choice(("flip", "change", "cut", "double", "insert", "end")):
            case "flip":
                data[at] ^= 1 << choice.randrange(8)
                size = 1
            case "change":
                data[at : at + size] = choice.randbytes(len(data[at : at + size]))
            case "cut":
                del data[at : at + size]
            case "double":
                data[at:at] = data[at : at + size]
            case "insert":
                data[at:at] = choice.choice(_JUNK)
                size = 1
            case "end" if at > len(data) * 0.7:
                del data[at:]
                size = len(whole.data)
            case _:
                data[at : at + size] = bytes(len(data[at : at + size]))
        pairs = zip(whole.borders, whole.borders[1:], strict=False)
        touched.append(
            {n for n, (begin, end) in enumerate(pairs) if begin - _BORDER < at + size and at < end + _BORDER}
        )
    return bytes(data), touched


def read(data: bytes, part_bytes: int | None = None) -> tuple[list[RawRecord], list[FileReport]]:
    """All records of an archive, read as one or in parts."""
    spans = split_file(lambda: io.BytesIO(data), len(data), part_bytes) if part_bytes else [Span()]
    records: list[RawRecord] = []
    reports: list[FileReport] = []
    for span in spans:
        reports.append(FileReport())
        records += read_records(lambda: io.BytesIO(data), reports[-1], span)
    return records, reports


def faults_of_reading(whole: Archive, data: bytes, touched: list[set[int]], part_bytes: int | None = None) -> list[str]:
    """What is wrong with how a damaged archive is read; nothing when all is well."""
    began = time.process_time()
    records, reports = read(data, part_bytes)
    for one in records:
        page_of(one)
    found = [] if time.process_time() - began < SECONDS else [f"{time.process_time() - began:.1f} s"]
    if sum(report.records for report in reports) != len(records):
        found.append("the report counts other records than there are")
    lost = [one for one in records if one.fault]
    blocks = Counter(one.block for one in records if not one.fault)
    intact = [item.split(b"\r\n\r\n", 1)[1][:-4] for item in whole.records]
    if whole.packing.endswith("whole"):
        if len(records) < len(intact) and not lost:
            found.append(f"{len(intact) - len(records)} records are gone without a word")
        return found
    for number, block in enumerate(intact):
        if not any(number in one for one in touched) and not blocks[block]:
            found.append(f"record {number} of {len(intact)}, which nothing touched, is gone")
    places = Counter(one.offset for one in records if not one.fault)
    if max(places.values(), default=0) > 1:
        found.append("a record is there twice")
    # One cut can make a single good record of the head of one and the block of the next; no reader can tell.
    alone = [one for one in touched if len(one) == 1 and sum(bool(one & other) for other in touched) == 1]
    missing = [number for one in alone for number in one if not blocks[intact[number]]]
    other = sum(blocks.values()) - sum(blocks[block] for block in intact)
    if missing and not lost and not other:
        found.append(f"records {missing} are gone without a word")
    return found


_TAGS = (
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
        "</pre>",
    ),
    *("<a href='/x'>", "</a>", "<br>", "<h1>", "</h1>", "<!--", "-->", "<script>", "</script>", "<", ">", "&", "&#0;"),
    *("&amp;", "\0", '"', "'", "<svg>", "<math>", "<template>", "</template>", "<b class='ad'>", "<![CDATA[", "]]>"),
    *("<textarea>", "<select>", "<noscript>", "<plaintext>", "<title>", "</body>", "<body hidden>", "<ol>", "<dd>"),
    *(
        "漢字",
        "\u2028",
        "\ufeff",
        "a sentence of some length, which counts as prose. ",
        "<frameset>",
        "<p " + "x=1 " * 300,
    ),
)


def mangled_page(choice: random.Random, page: str) -> str:
    """A page with pieces cut out, moved, repeated and put in."""
    for _ in range(choice.randint(1, 12)):
        at = choice.randrange(len(page) + 1)
        size = choice.choice((1, 3, 20, 300, 5000))
        match choice.choice(("cut", "double", "insert", "many", "move", "nest")):
            case "cut":
                page = page[:at] + page[at + size :]
            case "double":
                page = page[:at] + page[at : at + size] * choice.choice((2, 20)) + page[at + size :]
            case "insert":
                page = page[:at] + choice.choice(_TAGS) + page[at:]
            case "many":
                page = page[:at] + choice.choice(_TAGS) * choice.choice((10, 1000)) + page[at:]
            case "move":
                other = choice.randrange(len(page) + 1)
                page = page[:at] + page[other : other + size] + page[at:]
            case _:
                depth = choice.choice((10, 400, 3000))
                page = page[:at] + "<div><b>" * depth + page[at : at + size] + "</b></div>" * depth + page[at + size :]
        page = page[:300_000] or "x"
    return page
