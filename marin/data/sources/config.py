"""Sources of documents that are not crawled: files in common formats, datasets of the Hugging Face hub, dumps."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from marin.execution import External, runtime

MIB = 1024**2

FileFormat = Literal["jsonl", "parquet", "csv", "text", "wikipedia"]
FILE_FORMATS: tuple[FileFormat, ...] = ("jsonl", "parquet", "csv", "text", "wikipedia")

_SOURCE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


@dataclass(frozen=True)
class HubDataset:
    """A dataset of the Hugging Face hub, or one that `datasets` has saved in a folder.

    Attributes:
        name: name on the hub, such as ``"org/name"``.
        revision: commit or tag. It is the identity; a branch would name another content tomorrow.
        subset: configuration of the dataset.
        split: split that is read.
        parts: tasks that read it. Part of the identity, because documents without URL or id are named by it.
        saved_in: folder that ``Dataset.save_to_disk`` wrote, read instead of the hub.
    """

    name: str
    revision: str
    subset: str | None = None
    split: str = "train"
    parts: int = 16
    saved_in: str | None = runtime(None)

    def __post_init__(self) -> None:
        for field in ("name", "revision", "split"):
            if not getattr(self, field):
                raise ValueError(f"HubDataset.{field} is empty; name the dataset, a commit of it and a split")
        if self.parts < 1:
            raise ValueError(f"HubDataset.parts is {self.parts!r}; it must be at least 1")


@dataclass(frozen=True)
class SourceConfig:
    """One source of documents.

    Attributes:
        source: name of the source, part of every document's id.
        files: files to read where they lie: local paths or URLs, folders, glob patterns. Each file's version is its
            identity. Those packed with gzip, bzip2, xz or zstd are unpacked, whatever their names.
        format: what the files are. ``"text"``: each file is a document; ``"wikipedia"``: XML dumps of MediaWiki.
        dataset: a dataset to read instead of files.
        text_field: field or column with the text.
        url_field: field with the address, where there is one.
        id_field: field with an id that is unique in the source, where there is one and no address.
        language_field: field with the language code, where there is one.
        licence: licence of documents that tell none themselves; ``""`` when it is not known.
        max_replaced: share of U+FFFD above which a document is counted as ``undecodable``.
        max_controls: share of control characters above which a document is counted as ``binary``.
        longest_record: bytes of a line, field, page or text file above which it is counted as ``too_long``; it bounds
            the memory of a task.
        strict: fail the step when a packed file is cut or damaged, or another format, in place of keeping what lies
            before that and saying so.
        task_bytes: bytes of files that one task reads; a larger file is a task of its own, but for dumps in many
            bzip2 streams, which are read in parts of this size.
    """

    source: str
    files: tuple[External, ...] = ()
    format: FileFormat = "jsonl"
    dataset: HubDataset | None = None
    text_field: str = "text"
    url_field: str = "url"
    id_field: str = "id"
    language_field: str = ""
    licence: str = ""
    max_replaced: float = 0.01
    max_controls: float = 0.01
    longest_record: int = 128 * MIB
    strict: bool = False
    task_bytes: int = 128 * MIB

    def __post_init__(self) -> None:
        if not _SOURCE_NAME.fullmatch(self.source):
            raise ValueError(
                f"source.source is {self.source!r}; use lower-case letters, digits, '-' and '_', such as 'books'"
            )
        if (self.dataset is None) == (not self.files):
            found = "both" if self.files else "neither"
            raise ValueError(f"source {self.source!r} has {found} of files and dataset; give exactly one")
        if self.format not in FILE_FORMATS:
            raise ValueError(f"source.format is {self.format!r}; choose one of {', '.join(FILE_FORMATS)}")
        if not self.text_field:
            raise ValueError(f"source.text_field of {self.source!r} is empty; name the field that holds the text")
        for field in ("max_replaced", "max_controls"):
            if not 0.0 <= getattr(self, field) <= 1.0:
                raise ValueError(f"source.{field} is {getattr(self, field)!r}; it is a share between 0 and 1")
        for field in ("longest_record", "task_bytes"):
            if getattr(self, field) < 1:
                raise ValueError(f"source.{field} is {getattr(self, field)!r}; it must be at least 1")
