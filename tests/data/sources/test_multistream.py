"""Dumps in many bzip2 streams are read in parts, and nothing is lost between them."""

from __future__ import annotations

import bz2
import io
from dataclasses import replace
from pathlib import Path

import pytest

from marin.data.documents.io import iterate_documents
from marin.data.sources.config import SourceConfig
from marin.data.sources.multistream import WHOLE, Part, PartStream, parts_of
from marin.data.sources.ready import files_of
from tests.data.sources.reading import read
from tests.data.sources.test_dumps import END, HEAD, page

STREAMS = [
    HEAD,
    *("".join(page(number, f"Mill {number} {'x' * (number * 37 % 400)}") for number in range(start, start + 5))
      for start in range(0, 300, 5)),
    END,
]  # fmt: skip
DUMP = b"".join(bz2.compress(stream.encode()) for stream in STREAMS)
WHOLE_DUMP = bz2.compress("".join(STREAMS).encode())


def source(path: Path, task_bytes: int) -> SourceConfig:
    return replace(files_of("wikipedia", (str(path),), format="wikipedia", version="1"), task_bytes=task_bytes)


def found(prefix: Path, data: bytes, task_bytes: int = 1 << 30) -> tuple[list[tuple[str, str, str | None]], int, int]:
    """Documents in order, the number of shards, and that of lost records."""
    path = prefix / "dump.xml.bz2"
    prefix.mkdir(exist_ok=True)
    path.write_bytes(data)
    documents, flow = read(prefix / "p", source(path, task_bytes))
    told = [(one.id, one.text, one.url) for one in iterate_documents(documents)]
    return told, len(documents.shards), sum(flow["dropped"].values())


@pytest.mark.parametrize("parts", [2, 3, 11, 500])
def test_parts_begin_with_pages_and_together_are_the_dump(parts: int) -> None:
    chosen = parts_of(io.BytesIO(DUMP), len(DUMP), len(DUMP) // parts)
    assert len(chosen) >= min(parts, 40)
    assert chosen[0].begin == 0 and chosen[-1].end is None
    assert [part.end for part in chosen[:-1]] == [part.begin for part in chosen[1:]]
    texts = [bz2.decompress(io.BufferedReader(PartStream(io.BytesIO(DUMP), part)).read()).decode() for part in chosen]
    assert "".join(texts) == "".join(STREAMS)
    assert all(text.lstrip().startswith("<page>") for text in texts[1:])


def test_the_documents_are_the_same_in_parts_and_as_one(tmp_path: Path) -> None:
    one, shards, _ = found(tmp_path / "one", DUMP)
    many, further, _ = found(tmp_path / "many", DUMP, len(DUMP) // 7)
    assert len(one) == 300
    assert many == one == found(tmp_path / "whole", WHOLE_DUMP)[0]
    assert (shards, further >= 7) == (1, True)
    assert one[17][2] == "https://en.wikipedia.org/wiki/Mill_17"


def test_a_file_without_streams_that_begin_with_pages_is_one_part() -> None:
    plain = "".join(STREAMS).encode()
    lines = b"".join(bz2.compress(b" " * 3 + line) for line in plain.splitlines(keepends=True) if b"<page>" not in line)
    for data in (WHOLE_DUMP, plain, lines, b"", b"BZh9"):
        assert parts_of(io.BytesIO(data), len(data), max(1, len(data) // 5)) == [WHOLE]


def test_streams_that_cut_pages_do_not_begin_parts() -> None:
    plain = "".join(STREAMS).encode()
    data = b"".join(bz2.compress(plain[at : at + 777]) for at in range(0, len(plain), 777))
    texts = [
        bz2.decompress(io.BufferedReader(PartStream(io.BytesIO(data), part)).read())
        for part in parts_of(io.BytesIO(data), len(data), len(data) // 9)
    ]
    assert b"".join(texts) == plain
    assert all(text.lstrip().startswith(b"<page>") for text in texts[1:])


def test_damage_in_a_part_costs_the_rest_of_that_part_only(tmp_path: Path) -> None:
    parts = parts_of(io.BytesIO(DUMP), len(DUMP), len(DUMP) // 6)
    middle = parts[2].begin + 20
    damaged = DUMP[:middle] + bytes(30) + DUMP[middle + 30 :]
    told, _, lost = found(tmp_path, damaged, len(DUMP) // 6)
    assert lost == 1
    assert 300 - 300 // len(parts) - 10 <= len(told) < 300
    assert told[-1][1].startswith("Mill 299")


def test_a_dump_that_ends_too_early_is_said_in_its_last_part(tmp_path: Path) -> None:
    told, _, lost = found(tmp_path, DUMP[: -len(bz2.compress(END.encode()))], len(DUMP) // 4)
    assert (len(told), lost) == (300, 1)


def test_a_part_is_read_to_its_end_and_no_further() -> None:
    stream = PartStream(io.BytesIO(bytes(range(100))), Part(10, 35))
    assert io.BufferedReader(stream, 7).read() == bytes(range(10, 35))
