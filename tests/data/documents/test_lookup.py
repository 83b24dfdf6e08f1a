"""Single rows of parquet shards are found without reading the rest."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from marin.data.documents.lookup import matching_rows, read_row
from marin.execution import materialise
from tests.data.pages import Page, PageSet, write_pages

TEXTS = [f"{n} {random.Random(n).randbytes(4_000).hex()}" for n in range(200)]


class CountingStream(io.RawIOBase):
    """A stream that knows how many bytes were read."""

    def __init__(self, inner: BinaryIO) -> None:
        self.inner = inner
        self.count = 0

    def read(self, size: int = -1) -> bytes:
        data = self.inner.read(size)
        self.count += len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.inner.seek(offset, whence)

    def tell(self) -> int:
        return self.inner.tell()

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True


@pytest.fixture
def pages(tmp_path: Path) -> Any:
    return materialise(write_pages(PageSet("web", (tuple(Page(text) for text in TEXTS),))), prefix=str(tmp_path))


def test_a_row_is_found_by_its_id_and_read_with_all_its_columns(pages: Any) -> None:
    (shard,) = pages.shards
    (row,) = matching_rows(pages, shard.name, "url", lambda url: url == "http://web.invalid/150")
    assert row == 150
    assert read_row(pages, shard.name, row)["text"] == TEXTS[150]
    assert read_row(pages, shard.name, 3, ["url", "no such column"]) == {"url": "http://web.invalid/3"}
    assert list(matching_rows(pages, shard.name, "id", lambda value: value == "0" * 32)) == []
    with pytest.raises(IndexError, match="200 rows"):
        read_row(pages, shard.name, 200)


def test_looking_for_an_id_reads_no_text(pages: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (shard,) = pages.shards
    opened: list[CountingStream] = []
    plain = type(pages).open

    def counted(self: Any, name: str) -> Any:
        opened.append(CountingStream(plain(self, name)))
        return opened[-1]

    monkeypatch.setattr(type(pages), "open", counted)
    assert list(matching_rows(pages, shard.name, "id", lambda value: False)) == []
    assert 0 < opened[-1].count < pages.file_info(shard.name).size / 10
