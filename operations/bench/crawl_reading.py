"""Rows of the crawl benchmark: reading, extraction, and the memory that reading takes."""

from __future__ import annotations

import functools
import gzip
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from crawl_inputs import Inputs, html_pages, race, row

MB = 1e6


def decoded_pages(inputs: Inputs) -> Iterator[dict[str, Any]]:
    """WARC to decoded pages."""
    from marin.data.crawl.warc.pages import page_of
    from marin.data.crawl.warc.records import FileReport, read_records

    def ours(warc: Path) -> list[str]:
        records = read_records(lambda: warc.open("rb"), FileReport())
        return [page.content for page in map(page_of, records) if not isinstance(page, str)]

    def datatrove(warc: Path) -> list[str]:
        from datatrove.pipeline.readers import WarcReader

        return [page.text for page in WarcReader(str(warc.parent), glob_pattern=warc.name).run()]

    for warc in inputs.warcs:
        sides: dict[str, Callable[[], list[str]]] = {"ours": functools.partial(ours, warc)}
        missing = ""
        try:
            datatrove(warc)
            sides["datatrove"] = functools.partial(datatrove, warc)
        except ImportError as error:
            missing = str(error)
        seconds, pages = race(sides, inputs.rounds)
        sizes = {side: sum(len(page.encode()) for page in texts) / MB for side, texts in pages.items()}
        speeds = {side: sizes[side] / seconds[side] for side in sizes}
        yield row(
            "warc_to_decoded_pages",
            speeds["ours"],
            speeds.get("datatrove", 0.0),
            "MB/s",
            warc.name,
            pages={side: len(texts) for side, texts in pages.items()},
            megabytes={side: round(size, 1) for side, size in sizes.items()},
            **({"no_peer": missing} if missing else {}),
        )


def extraction(inputs: Inputs) -> Iterator[dict[str, Any]]:
    """HTML to main text."""
    from datatrove.pipeline.extractors import Trafilatura

    from marin.data.crawl.extraction.extractors import extractor

    scorer, trafilatura = extractor("resiliparse", 512), Trafilatura()

    def raced(pages: Sequence[str]) -> tuple[dict[str, float], dict[str, list[str]]]:
        sides: dict[str, Callable[[], Any]] = {
            "ours": lambda: [scorer(page) for page in pages],
            "trafilatura": lambda: [trafilatura.extract(page) or "" for page in pages],
        }
        seconds, texts = race(sides, inputs.rounds)
        return {side: len(pages) / spent for side, spent in seconds.items()}, texts

    for warc in inputs.warcs:
        pages = html_pages(warc, inputs.pages)
        speeds, texts = raced(pages)
        empty = {side: sum(not text.strip() for text in found) for side, found in texts.items()}
        yield row(
            "extraction", speeds["ours"], speeds["trafilatura"], "pages/s", f"{len(pages)} of {warc.name}", empty=empty
        )
    if inputs.articles is not None:
        truths, pages = _articles(inputs.articles)
        speeds, texts = raced(pages)
        given = f"{len(pages)} marked articles"
        yield row("extraction", speeds["ours"], speeds["trafilatura"], "pages/s", given)
        scores = {side: _score(found, truths) for side, found in texts.items()}
        halves = {side: [_score(found[n::2], truths[n::2])["f1"] for n in (0, 1)] for side, found in texts.items()}
        yield row(
            "extraction_f1",
            scores["ours"]["f1"],
            scores["trafilatura"]["f1"],
            "F1",
            given,
            scores=scores,
            halves=halves,
        )


def _articles(folder: Path) -> tuple[list[str], list[str]]:
    """True bodies and pages, in the order of their names."""
    truth = json.loads(gzip.decompress((folder / "ground-truth.json.gz").read_bytes()))
    files = {path.name.removesuffix(".html.gz"): path for path in (folder / "html").glob("*.html.gz")}
    names = sorted(truth.keys() & files.keys())
    pages = [gzip.decompress(files[name].read_bytes()).decode("utf-8", "replace") for name in names]
    return [truth[name]["articleBody"] for name in names], pages


def _grams(text: str) -> Counter[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return Counter(tuple(words[at : at + 4]) for at in range(max(1, len(words) - 3)))


def _score(texts: Sequence[str], truths: Sequence[str]) -> dict[str, float]:
    precisions: list[float] = []
    recalls: list[float] = []
    for text, truth in zip(texts, truths, strict=True):
        found, wanted = _grams(text), _grams(truth)
        hits = sum((found & wanted).values())
        if text.strip():
            precisions.append(hits / sum(found.values()))
        recalls.append(hits / sum(wanted.values()) if text.strip() else 0.0)
    precision, recall = sum(precisions) / max(1, len(precisions)), sum(recalls) / len(recalls)
    f1 = 2 * precision * recall / max(1e-9, precision + recall)
    return {"precision": round(precision, 4), "recall": round(recall, 4), "f1": round(f1, 4)}


READ = """
import re, sys
from marin.data.crawl.warc.pages import page_of
from marin.data.crawl.warc.records import FileReport, read_records

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) / 1024

before, report, pages = peak(), FileReport(), 0
for record in read_records(lambda: open(sys.argv[1], "rb"), report):
    pages += not isinstance(page_of(record), str)
print(before, peak(), report.records, pages)
"""


def memory(inputs: Inputs) -> Iterator[dict[str, Any]]:
    """Peak memory of a process that reads a large WARC, in each packaging; the peer is the size of its largest page."""
    for packaging in ("gzip a record", "gzip as a whole", "plain"):
        with tempfile.TemporaryDirectory() as folder:
            warc = Path(folder) / "large.warc.gz"
            write_large(warc, inputs.large_mb, packaging)
            printed = subprocess.run(
                [sys.executable, "-c", READ, str(warc)], capture_output=True, text=True, check=True
            ).stdout.split()
        before, peak = float(printed[0]), float(printed[1])
        yield row(
            "reading_memory",
            peak - before,
            100.0,
            "MB above the start",
            f"{inputs.large_mb} MB with a page of 100 MB, {packaging}",
            records=int(printed[2]),
            pages=int(printed[3]),
            peak_mb=round(peak, 1),
            less_is_better=True,
        )


def write_large(path: Path, megabytes: int, packaging: str) -> None:
    """A WARC of pages of 1 MB, with one of 100 MB in the middle; the text repeats, so that it packs to little."""

    def record(size: int) -> bytes:
        body = b"<html><body>" + b"<p>some words of a text that repeats</p>\n" * (size // 42) + b"</body></html>"
        block = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + body
        head = b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://x.example/\r\nContent-Length: %d\r\n\r\n"
        return head % len(block) + block + b"\r\n\r\n"

    small, large = record(1_000_000), record(100_000_000)
    count = max(2, megabytes - 100)
    with gzip.open(path, "wb", compresslevel=1) if packaging == "gzip as a whole" else path.open("wb") as stream:
        for number in range(count):
            for item in (small, large) if number == count // 2 else (small,):
                stream.write(gzip.compress(item, 1) if packaging == "gzip a record" else item)
