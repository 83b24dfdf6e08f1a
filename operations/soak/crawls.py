"""Real WARC files in every packing, part and order: the same records, the same documents, and counters that add up.

    python operations/soak/crawls.py --warc FILE…

For each file, the records are counted by warcio too. Then the file is written anew plain, with a gzip member and with a
zstd frame for each record, and as one of either, and each is extracted; what comes out of the plain and the member-wise
ones is extracted in 2, 3 and 7 parts as well. A line for each file, and exit code 1 when something differs.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import zstandard
from warcio.archiveiterator import ArchiveIterator

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from marin.data.crawl.config import external_crawl
from marin.data.crawl.extraction import bundles
from marin.data.crawl.steps import extract_pages, fetch_crawl
from marin.data.documents.artifacts import Documents
from marin.data.documents.io import iterate_documents
from marin.execution import StepError, materialise

PARTS = (2, 3, 7)
_NOTHING = re.compile(r"no document came out of the (\d+) records of crawl 'web': (.*)")


def main(arguments: list[str] | None = None) -> int:
    """Check every file; 1 when one of them does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--warc", nargs="+", type=Path, required=True)
    request = parser.parse_args(arguments)
    bad = 0
    for path in request.warc:
        with tempfile.TemporaryDirectory() as folder:
            line = check(path, Path(folder))
        print(json.dumps({"file": path.name, **line}), flush=True)
        bad += bool(line["wrong"])
    return 1 if bad else 0


def check(path: Path, folder: Path) -> dict[str, Any]:
    """What became of a file, and what is wrong with that."""
    wrong: list[str] = []
    kinds = Counter(record.rec_type for record in ArchiveIterator(_plain(path)))
    own = extracted(path, folder / "own")
    if own.flow["read"] != sum(kinds.values()):
        wrong.append(f"{own.flow['read']} records, and {sum(kinds.values())} by warcio")
    for kind, count in kinds.items():
        if kind != "response" and own.flow["dropped"].get(kind, 0) != count:
            wrong.append(f"{own.flow['dropped'].get(kind, 0)} records of {kind}, and {count} by warcio")
    for packing, data in packed(path):
        copy = folder / path.name.removesuffix(".gz")
        copy.write_bytes(data)
        counts: tuple[int, ...] = (1, *PARTS) if packing in ("plain", "gzip", "own") else (1,)
        for parts in counts:
            found = extracted(copy, folder / f"{packing} {parts}", parts)
            if found.documents != own.documents:
                wrong.append(f"{packing} in {parts} parts: other documents")
            if found.flow != own.flow:
                wrong.append(f"{packing} in {parts} parts: {found.flow}, and {own.flow} of the file itself")
    return {"records": own.flow["read"], "documents": own.flow["kept"], "dropped": own.flow["dropped"], "wrong": wrong}


class Extracted:
    """The documents of a file, without the place in it, and the flow of its records."""

    def __init__(self, documents: list[tuple[Any, ...]], flow: dict[str, Any]) -> None:
        self.documents = documents
        self.flow = flow


def extracted(path: Path, prefix: Path, parts: int = 1) -> Extracted:
    """Extract a file in so many parts."""
    size = path.stat().st_size
    least = max(1, size // parts) if parts > 1 else 1 << 40
    crawl = fetch_crawl(external_crawl("web", [str(path)], version=f"{prefix.name}"))
    with mock.patch.object(bundles, "LEAST_BYTES", least), mock.patch.object(bundles, "_TASKS", 1000):
        try:
            pages: Documents = materialise(extract_pages(crawl), prefix=str(prefix))
        except StepError as error:
            said = _NOTHING.search(str(error))
            if said is None:
                raise
            dropped = {reason: int(count) for reason, count in (one.split() for one in said[2].split(", "))}
            return Extracted([], {"unit": "records", "read": int(said[1]), "kept": 0, "dropped": dropped})
    flow = pages.read_json("extraction.json")["flow"]
    if flow["read"] != flow["kept"] + sum(flow["dropped"].values()):
        raise AssertionError(f"counters do not add up: {flow}")
    documents = [(one.url, one.text_hash, one.id if one.url else "") for one in iterate_documents(pages)]
    return Extracted(documents, flow)


def packed(path: Path) -> Iterator[tuple[str, bytes]]:
    """The file itself, and its records in every packing."""
    yield "own", path.read_bytes()
    records = list(_records(path))
    plain = b"".join(records)
    zstd = zstandard.ZstdCompressor(level=3, write_checksum=True)
    yield "plain", plain
    yield "gzip", b"".join(gzip.compress(record, 6, mtime=0) for record in records)
    yield "zstd", b"".join(zstd.compress(record) for record in records)
    yield "gzip as a whole", gzip.compress(plain, 6, mtime=0)
    yield "zstd as a whole", zstd.compress(plain)


def _records(path: Path) -> Iterator[bytes]:
    stream = _plain(path)
    places = ArchiveIterator(stream, no_record_parse=True)
    begins = [places.get_record_offset() for _ in places]
    for begin, end in pairwise([*begins, len(stream.getvalue())]):
        yield stream.getvalue()[begin:end]


def _plain(path: Path) -> io.BytesIO:
    """The records as they are, since warcio does not read a file that is gzip as a whole."""
    data = path.read_bytes()
    return io.BytesIO(gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data)


if __name__ == "__main__":
    sys.exit(main())
