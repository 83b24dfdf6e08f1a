"""Records of files and datasets, by datatrove's readers where they lose nothing.

Imports datatrove; import this module inside step bodies only.
"""

from __future__ import annotations

import csv
import io
import json
import posixpath
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from datatrove.data import Document as TroveDocument
from datatrove.io import get_datafolder
from datatrove.pipeline.readers import CSVReader, HuggingFaceDatasetReader, ParquetReader
from datatrove.pipeline.readers.base import BaseDiskReader, BaseReader

from marin.data.sources.config import FileFormat, HubDataset
from marin.data.sources.wikitext import plain_text
from marin.execution import StepError

_LONGEST_LINE = 1 << 30
_ARTICLES = "0"


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


def rows_of_file(format: FileFormat, url: str, text_field: str) -> Iterator[Row | Lost]:
    """Every record of a file, in order.

    Raises:
        StepError: the file is damaged as a whole, or has no column with the text.
    """
    folder, name = posixpath.split(url)
    try:
        yield from _READERS[format](folder, name, text_field)
    except StepError:
        raise
    except Exception as error:  # readers of every format have errors of their own
        raise StepError(f"{url} cannot be read as {format}: {type(error).__name__}: {error}") from error


def rows_of_dataset(dataset: HubDataset, part: int) -> Iterator[Row]:
    """The records of one part of a dataset."""
    options = {"split": dataset.split, "revision": dataset.revision} | (
        {"name": dataset.subset} if dataset.subset is not None else {}
    )
    if dataset.saved_in is None:
        reader = HuggingFaceDatasetReader(dataset.name, dataset_options=options, streaming=True)
    else:
        reader = HuggingFaceDatasetReader(dataset.saved_in, load_from_disk=True)
    for number, document in enumerate(every_record(reader).run(rank=part, world_size=dataset.parts)):
        yield Row(f"{part}/{number}", document.metadata)


def every_record(reader: BaseReader) -> BaseReader:
    """A datatrove reader that gives every record, with its fields as metadata, also those without text.

    By itself a reader leaves out records without text and counts them nowhere.
    """

    def whole(data: dict[str, Any], source_file: str, id_in_file: int | str) -> TroveDocument:
        return TroveDocument(text="", id=f"{id_in_file}", metadata=data)

    reader.get_document_from_dict = whole
    return reader


def _parquet(folder: str, name: str, text_field: str) -> Iterator[Row]:
    yield from _columnar(ParquetReader(folder), name, text_field)


def _csv(folder: str, name: str, text_field: str) -> Iterator[Row]:
    csv.field_size_limit(min(sys.maxsize, _LONGEST_LINE))  # the module's own limit is 128 KiB, shorter than many a text
    yield from _columnar(_CsvReader(folder), name, text_field)


def _columnar(reader: BaseDiskReader, name: str, text_field: str) -> Iterator[Row]:
    for number, document in enumerate(every_record(reader).read_file(name)):
        if text_field not in document.metadata:
            columns = ", ".join(str(one) for one in document.metadata)
            raise StepError(f"{name}, row {number}: there is no column {text_field!r}; it has {columns}")
        yield Row(f"{name}:{number}", document.metadata)


class _CsvReader(CSVReader):  # type: ignore[misc]  # datatrove has no types
    """datatrove's reader, for which a byte that is no UTF-8 ends the file."""

    def read_file(self, filepath: str) -> Iterator[TroveDocument]:
        with self.data_folder.open(filepath, "rb", compression="infer") as stream:
            text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="replace", newline="")
            for number, row in enumerate(csv.DictReader(text)):
                fields = {key if key is not None else "further": value for key, value in row.items()}
                yield self.get_document_from_dict(fields, filepath, number)


def _jsonl(folder: str, name: str, text_field: str) -> Iterator[Row | Lost]:
    """JSON lines; datatrove's reader passes over broken ones without counting them."""
    offset = 0
    with _opened(folder, name) as stream:
        for line in stream:
            place = f"{name}:{offset}"
            offset += len(line)
            if not line.strip():
                continue
            try:
                value = json.loads(line.decode("utf-8-sig", "replace"))
            except (ValueError, RecursionError):
                yield Lost(place, "broken_line")
                continue
            yield Row(place, value) if isinstance(value, dict) else Lost(place, "no_object")


def _text(folder: str, name: str, text_field: str) -> Iterator[Row]:
    with _opened(folder, name) as stream:
        yield Row(name, {text_field: stream.read().decode("utf-8-sig", "replace")})


def _wikipedia(folder: str, name: str, text_field: str) -> Iterator[Row | Lost]:
    """The pages of a MediaWiki dump; only the page at hand is in memory."""
    with _opened(folder, name) as stream:
        base = ""
        parser = iter(ET.iterparse(stream, events=("start", "end")))
        _, root = next(parser)
        for event, element in parser:
            tag = element.tag.rpartition("}")[2]
            if event == "end" and tag == "base":
                base = (element.text or "").rpartition("/")[0]
            if event != "end" or tag != "page":
                continue
            yield _page(element, base, name, text_field)
            root.clear()


def _page(element: ET.Element, base: str, name: str, text_field: str) -> Row | Lost:
    found = {one.tag.rpartition("}")[2]: one for one in element.iter()}

    def value(tag: str) -> str:
        one = found.get(tag)
        return (one.text or "") if one is not None else ""

    number, title = element.findtext("{*}id") or "", value("title")
    place = f"{name}:{number}"
    if value("ns") != _ARTICLES:
        return Lost(place, "other_namespace")
    if "redirect" in found:
        return Lost(place, "redirect")
    fields = {text_field: plain_text(value("text")), "title": title, "page": number, "date": value("timestamp")}
    return Row(place, fields | ({"url": f"{base}/{title.replace(' ', '_')}"} if base and title else {}))


def _opened(folder: str, name: str) -> Any:
    """A stream over the unpacked bytes of a file."""
    return get_datafolder(folder).open(name, "rb", compression="infer")


_READERS: dict[FileFormat, Callable[[str, str, str], Iterator[Row | Lost]]] = {
    "jsonl": _jsonl,
    "parquet": cast(Any, _parquet),
    "csv": cast(Any, _csv),
    "text": cast(Any, _text),
    "wikipedia": _wikipedia,
}
