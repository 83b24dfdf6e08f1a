"""Documents from the records of a source, with every record in exactly one counter.

Imports pyarrow; import this module inside step bodies only.
"""

from __future__ import annotations

import logging
import posixpath
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from marin.data.documents.artifacts import Documents
from marin.data.documents.io import DocumentWriter, documents_of
from marin.data.documents.normalise import NormalisedText, normalise
from marin.data.documents.schema import Document, make_document
from marin.data.inputs.patient import patiently
from marin.data.sources.account import PLACES_KEPT, UNREAD, TaskResult, UnreadFile, summed, why_nothing
from marin.data.sources.config import SourceConfig
from marin.data.sources.multistream import WHOLE, Part, parts_of
from marin.execution import External, Flow, StepError, current_run
from marin.execution.running.external import Sight, see, without_password

logger = logging.getLogger(__name__)

_FIELDS_SHOWN = 12


@dataclass(frozen=True)
class _Task:
    """What one worker reads: files, or one part of a dataset. Pickles."""

    number: int
    config: SourceConfig
    urls: tuple[str, ...]
    names: tuple[str, ...]
    sizes: tuple[int | None, ...]
    part: int = 0
    of_file: Part = WHOLE
    """What is read of the file, where there is one."""


def read_documents(config: SourceConfig) -> Documents:
    """Read a source; the body of the step."""
    run = current_run()
    tasks = list(plan_tasks(config))
    results = run.map(_read, tasks, unit="parts")
    account = summed(results, len({url for task in tasks for url in task.urls}))
    for file in account.unread:
        logger.warning("source %r: %s; the rest of it was not read", config.source, file)
    run.write_json("reading.json", account.to_json())
    shards = [shard for result in results for shard in result.shards]
    if not shards:
        raise StepError(why_nothing(config, account))
    if account.remark:
        run.remark(account.remark)
    return documents_of(config.source, shards)


def plan_tasks(config: SourceConfig) -> Iterator[_Task]:
    """Files in bundles of about ``task_bytes``, in order; or the parts of a dataset, or of a large dump."""
    if config.dataset is not None:
        for part in range(config.dataset.parts):
            yield _Task(part, config, (), (), (), part)
        return
    files: list[_File] = []
    filled = number = 0
    for file in _files(config):
        weight = config.task_bytes if file.size is None else file.size
        if files and filled + weight > config.task_bytes:
            yield _task(number, config, files)
            files, filled, number = [], 0, number + 1
        parts = _parts(config, file)
        if len(parts) > 1:
            if files:
                yield _task(number, config, files)
                files, filled, number = [], 0, number + 1
            for of_file in parts:
                yield replace(_task(number, config, [file]), of_file=of_file)
                number += 1
            continue
        files.append(file)
        filled += weight
    if files or not number:
        yield _task(number, config, files)


def _parts(config: SourceConfig, file: _File) -> list[Part]:
    """The parts in which a file is read."""
    if config.format != "wikipedia" or file.size is None or file.size < 2 * config.task_bytes:
        return [WHOLE]
    from marin.data.inputs.files import open_input

    with open_input(f"source {config.source!r}", file.url, size=file.size) as stream:
        return parts_of(stream, file.size, config.task_bytes)


@dataclass(frozen=True)
class _File:
    url: str
    name: str
    size: int | None


def _task(number: int, config: SourceConfig, files: list[_File]) -> _Task:
    columns = ([file.url for file in files], [file.name for file in files], [file.size for file in files])
    return _Task(number, config, tuple(columns[0]), tuple(columns[1]), tuple(columns[2]))


def _files(config: SourceConfig) -> Iterator[_File]:
    """Every file in order; one that two paths name is read once."""
    seen: set[str] = set()
    for number, external in enumerate(config.files):
        sight = _sight(f"source {config.source!r}, files[{number}]", external)
        for url, file in zip(sight.urls, sight.files, strict=True):
            if url not in seen:
                seen.add(url)
                yield _File(url, file.name, file.size)


def _sight(field: str, external: External) -> Sight:
    return patiently(lambda: see(field, external), lambda: f"{field}: {without_password(external.path)!r}")


def _read(task: _Task) -> TaskResult:
    run = current_run()
    reader = _Reader(task.config)
    with DocumentWriter(run.write, f"{task.config.source}-{task.number:05d}", source=task.config.source) as writer:
        for document in reader.documents(task):
            writer.write(document)
            reader.kept += 1
            run.progress(reader.records)
    dropped = dict(sorted(reader.dropped.items()))
    run.account(Flow("records", read=reader.records, kept=reader.kept, dropped=dropped))
    return TaskResult(
        shards=writer.shards,
        records=reader.records,
        dropped=dropped,
        places={reason: tuple(places) for reason, places in sorted(reader.places.items())},
        unread=tuple(reader.unread),
        mended=dict(reader.mended),
        fields=reader.fields,
    )


class _Reader:
    """Makes documents of records and counts what is none."""

    def __init__(self, config: SourceConfig) -> None:
        self.records = 0
        self.kept = 0
        self.dropped: Counter[str] = Counter()
        self.places: dict[str, list[str]] = defaultdict(list)
        self.unread: list[UnreadFile] = []
        self.fields: tuple[str, ...] = ()
        self.mended: Counter[str] = Counter()
        self._config = config
        self._ids: set[str] = set()

    def documents(self, task: _Task) -> Iterator[Document]:
        """The documents of a task."""
        from marin.data.sources.rows import Lost

        file, before, last = "", 0, ""
        for name, row in _rows(task):
            if name != file:
                file, before, last = name, self.records, ""
            self.records += 1
            if isinstance(row, Lost):
                self._drop(row.reason, row.place)
                if row.reason in UNREAD:
                    self._leave(UnreadFile(name, row.reason, self.records - 1 - before, last))
                else:
                    last = row.place
                continue
            last = row.place
            document = self._document(name, row.place, row.fields)
            if document is None:
                continue
            if document.id in self._ids:
                self._drop("same_record", row.place)
                continue
            self._ids.add(document.id)
            yield document

    def _drop(self, reason: str, place: str) -> None:
        self.dropped[reason] += 1
        if len(self.places[reason]) < PLACES_KEPT:
            self.places[reason].append(place)

    def _leave(self, file: UnreadFile) -> None:
        self.unread.append(file)
        if self._config.strict:
            state = "of another format" if file.reason == "other_format" else file.reason
            raise StepError(
                f"{file.name} of source {self._config.source!r} is {state} behind {file.records} records; get it "
                "again: source.strict allows no such file"
            )

    def _document(self, name: str, place: str, fields: Any) -> Document | None:
        config = self._config
        text = fields.get(config.text_field)
        if text is None or text == "":
            self._drop("no_text", place)
            if not self.fields and config.text_field not in fields:
                self.fields = tuple(str(field) for field in list(fields)[:_FIELDS_SHOWN])
            return None
        if not isinstance(text, str):
            self._drop("wrong_type", place)
            return None
        stored = normalise(text)
        reason = self._reason_against(stored.text, stored.stripped)
        if reason is not None:
            self._drop(reason, place)
            return None
        self._count_mended(text, stored)
        url, own = _word(fields.get(config.url_field)), _word(fields.get(config.id_field))
        taken = {config.text_field, config.url_field, config.language_field}
        metadata = {key: value for key, value in fields.items() if key not in taken and not isinstance(value, bytes)}
        metadata |= {"file": name} if name else {}
        if config.licence and not ({"licence", "license"} & metadata.keys()):
            metadata["licence"] = config.licence
        return make_document(
            stored.text,
            source=config.source,
            url=url,
            position=own or place,
            language=_word(fields.get(config.language_field)) if config.language_field else None,
            metadata=metadata,
        )

    def _count_mended(self, text: str, stored: NormalisedText) -> None:
        self.mended["controls"] += stored.stripped > 0
        self.mended["surrogates"] += stored.surrogates > 0
        self.mended["undecodable_bytes"] += "\ufffd" in text

    def _reason_against(self, text: str, stripped: int) -> str | None:
        if not text.strip():
            return "empty_text"
        if stripped > self._config.max_controls * (len(text) + stripped):
            return "binary"
        if text.count("\ufffd") > self._config.max_replaced * len(text):
            return "undecodable"
        return None


def _rows(task: _Task) -> Iterable[tuple[str, Any]]:
    from marin.data.sources.rows import SourceFile, rows_of_file

    if task.config.dataset is not None:
        from marin.data.sources.hub import rows_of_dataset

        yield from (("", row) for row in rows_of_dataset(task.config.dataset, task.part))
    for url, name, size in zip(task.urls, task.names, task.sizes, strict=True):
        # The place of a record must not hang on where its file lies.
        folder = posixpath.dirname(name)
        for row in rows_of_file(task.config, SourceFile(url, size, task.of_file)):
            yield name, replace(row, place=f"{folder}/{row.place}") if folder else row


def _word(value: Any) -> str | None:
    """A field's value as a word; None when there is none."""
    if value is None or isinstance(value, (dict, list, bytes)):
        return None
    return str(value).strip() or None
