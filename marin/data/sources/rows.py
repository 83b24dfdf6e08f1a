"""Records of files and datasets: whatever cannot be read comes as a `Lost` record, so that it can be counted.

Parquet files and datasets are read by datatrove's readers. Its readers of JSON lines and CSV pass over broken lines
without a word, or end with the first one; those are ours.

Imports datatrove; import this module inside step bodies only.
"""

from __future__ import annotations

import csv
import io
import json
import posixpath
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from datatrove.data import Document as TroveDocument
from datatrove.pipeline.readers import ParquetReader
from datatrove.pipeline.readers.base import BaseReader

from marin.data.crawl.warc.charset import decode_text
from marin.data.inputs.files import open_input, open_unpacked
from marin.data.inputs.packing import PackingError, unpacked
from marin.data.sources.config import SourceConfig
from marin.data.sources.dumps import Article, articles, head_of
from marin.data.sources.multistream import WHOLE, Part, PartStream
from marin.execution import StepError
from marin.storage import StoreUnavailable

_PART = 1 << 20
_PARQUET_ROWS = 128
_PARQUET = b"PAR1"
"""What a parquet file begins with."""
_GIVEN_AGAIN = 100
"""Lines of a CSV file at which reading is taken up again behind a quote that nothing closes."""


@dataclass(frozen=True)
class Row:
    """A record: its place in the file, and its fields."""

    place: str
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Lost:
    """A record that cannot be read: its place, and why."""

    place: str
    reason: str


@dataclass(frozen=True)
class SourceFile:
    """One file: its address, its size when known, and the part of it that is read."""

    url: str
    size: int | None
    part: Part = WHOLE

    @property
    def name(self) -> str:
        """The last part of its address."""
        return posixpath.basename(self.url.partition("?")[0] if "://" in self.url else self.url)


def rows_of_file(config: SourceConfig, file: SourceFile) -> Iterator[Row | Lost]:
    """Every record of a file, in order. One whose packing is cut or damaged ends with a `Lost` record that says so.

    Raises:
        StepError: the file is damaged as a whole, or has no column with the text.
        StoreUnavailable: its server is in trouble.
    """
    field = f"source {config.source!r}"
    try:
        if config.format == "parquet":
            with open_input(field, file.url, size=file.size) as raw:
                yield from _parquet(io.BufferedReader(raw, _PART), file.name, config)
            return
        if file.part != WHOLE:
            yield from _wikipedia_part(field, file, config)
            return
        with open_unpacked(field, file.url, size=file.size) as stream:
            if config.format != "text" and stream.peek(len(_PARQUET))[: len(_PARQUET)] == _PARQUET:
                yield Lost(file.name, "other_format")  # or else its bytes would be broken lines by the thousand
                return
            yield from _READERS[config.format](stream, file.name, config)
    except PackingError as error:
        yield Lost(file.name, error.damage)
    except (StepError, StoreUnavailable):
        raise
    except Exception as error:  # readers of every format have errors of their own
        raise StepError(f"{file.url} cannot be read as {config.format}: {type(error).__name__}: {error}") from error


def every_record(reader: BaseReader) -> BaseReader:
    """A datatrove reader that gives every record, with its fields as metadata, also those without text.

    By itself a reader leaves out records without text and counts them nowhere.
    """

    def whole(data: dict[str, Any], source_file: str, id_in_file: int | str) -> TroveDocument:
        return TroveDocument(text="", id=f"{id_in_file}", metadata=data)

    reader.get_document_from_dict = whole
    return reader


def _parquet(stream: io.BufferedReader, name: str, config: SourceConfig) -> Iterator[Row]:
    reader = every_record(ParquetReader(".", batch_size=_PARQUET_ROWS))
    reader.data_folder = _OpenedFile(stream)
    for number, document in enumerate(reader.read_file(name)):
        _require_column(config.text_field, document.metadata, name, number)
        yield Row(f"{name}:{number}", document.metadata)


@dataclass(frozen=True)
class _OpenedFile:
    """What datatrove's reader needs of a folder: it opens the file."""

    stream: io.BufferedReader

    def open(self, path: str, mode: str = "rb") -> io.BufferedReader:
        return self.stream


def _require_column(column: str, fields: Mapping[str, Any], name: str, number: int) -> None:
    if column not in fields:
        columns = ", ".join(str(one) for one in fields)
        raise StepError(f"{name}, row {number}: there is no column {column!r}; it has {columns}")


def _csv(stream: io.BufferedReader, name: str, config: SourceConfig) -> Iterator[Row | Lost]:
    """Rows of a CSV file, of which the first names the columns.

    A quote that nothing closes would make one row of the rest of the file: such a row is lost with its first line, and
    the lines behind that are read on their own.
    """
    csv.field_size_limit(config.longest_record)  # the module's own limit is 128 KiB, shorter than many a text
    lines = _RowLines(io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline=""))
    rows = csv.reader(lines)
    columns = next(rows, None)
    number = 0
    while columns is not None:
        lines.begin_row()
        try:
            values = next(rows)
        except StopIteration:
            return
        except csv.Error:
            values, is_broken = [], True
        else:
            is_broken = lines.has_ended or (len(values) < len(columns) and not lines.row[-1].endswith(("\n", "\r")))
        if is_broken:
            yield Lost(f"{name}:{number}", "broken_line")
            lines.give_again()
        elif values:
            fields: dict[str, Any] = dict(zip(columns, values, strict=False))
            fields |= {"further": values[len(columns) :]} if len(values) > len(columns) else {}
            _require_column(config.text_field, dict.fromkeys(columns), name, number)
            yield Row(f"{name}:{number}", fields)
        number += bool(values) or is_broken


class _RowLines:
    """The lines of a CSV file; those of the row at hand are kept, and can be read again without the first."""

    def __init__(self, lines: Iterator[str]) -> None:
        self.row: list[str] = []
        self.has_ended = False
        self._lines = lines
        self._again: deque[str] = deque()
        self._given_again = 0

    def __iter__(self) -> _RowLines:
        return self

    def __next__(self) -> str:
        line = self._again.popleft() if self._again else next(self._lines, None)
        if line is None:
            self.has_ended = True
            raise StopIteration
        self.row.append(line)
        return line

    def begin_row(self) -> None:
        self.row = []
        self.has_ended = False

    def give_again(self) -> None:
        if self._given_again < _GIVEN_AGAIN:
            self._given_again += 1
            self._again.extendleft(reversed(self.row[1:]))


def _jsonl(stream: io.BufferedReader, name: str, config: SourceConfig) -> Iterator[Row | Lost]:
    offset = 0
    for line, size in _lines(stream, config.longest_record):
        place = f"{name}:{offset}"
        offset += size
        if line is None:
            yield Lost(place, "too_long")
            continue
        if not line.strip():
            continue
        try:
            value = _parsed(line.decode("utf-8-sig", "replace"))
        except (ValueError, RecursionError):
            yield Lost(place, "broken_line")
            continue
        yield Row(place, value) if isinstance(value, dict) else Lost(place, "no_object")


def _parsed(text: str) -> Any:
    """The value of a JSON text; integers with more digits than Python converts are kept as text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        return json.loads(text, parse_int=lambda digits: int(digits) if len(digits) < 20 else digits)


def _lines(stream: io.BufferedReader, longest: int) -> Iterator[tuple[bytes | None, int]]:
    """Lines with their sizes in bytes; None in place of one that is longer than allowed, which is never held."""
    while line := stream.readline(longest + 1):
        size = len(line)
        if size <= longest:
            yield line, size
            continue
        while not line.endswith(b"\n") and (line := stream.readline(_PART)):
            size += len(line)
        yield None, size


def _text(stream: io.BufferedReader, name: str, config: SourceConfig) -> Iterator[Row | Lost]:
    data = stream.read(config.longest_record + 1)
    if len(data) > config.longest_record:
        yield Lost(name, "too_long")
        return
    decoded = decode_text(data)
    fields = {config.text_field: decoded.text}
    yield Row(name, fields if decoded.charset == "utf-8" else fields | {"charset": decoded.charset})


def _wikipedia(stream: io.BufferedReader, name: str, config: SourceConfig) -> Iterator[Row | Lost]:
    yield from _rows_of(articles(stream, name, config.longest_record), config)


def _wikipedia_part(field: str, file: SourceFile, config: SourceConfig) -> Iterator[Row | Lost]:
    part = file.part
    head = b""
    if not part.is_first:
        with open_unpacked(field, file.url, size=file.size) as stream:
            head = head_of(stream)
    raw = PartStream(open_input(field, file.url, size=file.size), part)
    with unpacked(raw, f"{field}: {file.url!r}") as stream:
        longest = config.longest_record
        found = articles(stream, file.name, longest, head=head, begin=part.begin, is_last=part.is_last)
        yield from _rows_of(found, config)


def _rows_of(pages: Iterable[tuple[str, Article | str]], config: SourceConfig) -> Iterator[Row | Lost]:
    for place, page in pages:
        if not isinstance(page, Article):
            yield Lost(place, page)
            continue
        fields = {config.text_field: page.text, "title": page.title, "page": page.number, "date": page.date}
        yield Row(place, fields | ({config.url_field: page.url} if page.url else {}))


_READERS: dict[str, Callable[[io.BufferedReader, str, SourceConfig], Iterator[Row | Lost]]] = {
    "jsonl": _jsonl,
    "csv": _csv,
    "text": _text,
    "wikipedia": _wikipedia,
}
