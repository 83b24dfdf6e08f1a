"""Documents from the records of a source, with every record in exactly one counter.

Imports pyarrow; import this module inside step bodies only.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from marin.data.documents.artifacts import Documents, DocumentShard
from marin.data.documents.io import DocumentWriter, documents_of
from marin.data.documents.normalise import normalise
from marin.data.documents.schema import Document, make_document
from marin.data.sources.config import SourceConfig
from marin.execution import Flow, StepError, current_run
from marin.execution.running.external import see

_PLACES_KEPT = 20


@dataclass(frozen=True)
class _Task:
    """What one worker reads: files, or one part of a dataset. Pickles."""

    number: int
    config: SourceConfig
    urls: tuple[str, ...]
    names: tuple[str, ...]
    part: int = 0


@dataclass(frozen=True)
class _Result:
    """What became of one task; ``lost`` has places of records that could not be read."""

    shards: tuple[DocumentShard, ...]
    records: int
    dropped: dict[str, int]
    lost: tuple[str, ...]


def read_documents(config: SourceConfig) -> Documents:
    """Read a source; the body of the step."""
    run = current_run()
    results = run.map(_read, list(plan_tasks(config)), unit="parts")
    dropped: Counter[str] = Counter()
    for result in results:
        dropped.update(result.dropped)
    records = sum(result.records for result in results)
    lost = [place for result in results for place in result.lost]
    run.write_json(
        "reading.json", {"records": records, "dropped": dict(sorted(dropped.items())), "lost": lost[:_PLACES_KEPT]}
    )
    shards = [shard for result in results for shard in result.shards]
    if not shards:
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(dropped.items())) or "there are none"
        raise StepError(
            f"no document came out of the {records} records of source {config.source!r}: {reasons}; is text_field "
            f"{config.text_field!r} right?"
        )
    return documents_of(config.source, shards)


def plan_tasks(config: SourceConfig) -> Iterator[_Task]:
    """Files in bundles of about ``task_bytes``, in order; or the parts of a dataset."""
    if config.dataset is not None:
        for part in range(config.dataset.parts):
            yield _Task(part, config, (), (), part)
        return
    urls: list[str] = []
    names: list[str] = []
    filled = number = 0
    for url, name, size in _files(config):
        if urls and filled + size > config.task_bytes:
            yield _Task(number, config, tuple(urls), tuple(names))
            urls, names, filled, number = [], [], 0, number + 1
        urls.append(url)
        names.append(name)
        filled += size
    yield _Task(number, config, tuple(urls), tuple(names))


def _files(config: SourceConfig) -> Iterator[tuple[str, str, int]]:
    """(URL, name, size) of every file; a file that two paths name is read once."""
    seen: set[str] = set()
    for number, external in enumerate(config.files):
        sight = see(f"source {config.source!r}, files[{number}]", external)
        for url, file in zip(sight.urls, sight.files, strict=True):
            if url not in seen:
                seen.add(url)
                yield url, file.name, file.size if file.size is not None else config.task_bytes


def _read(task: _Task) -> _Result:
    run = current_run()
    reader = _Reader(task.config)
    with DocumentWriter(run.write, f"{task.config.source}-{task.number:05d}", source=task.config.source) as writer:
        for document in reader.documents(task):
            writer.write(document)
            reader.kept += 1
            run.progress(reader.records)
    dropped = dict(sorted(reader.dropped.items()))
    run.account(Flow("records", read=reader.records, kept=reader.kept, dropped=dropped))
    return _Result(writer.shards, reader.records, dropped, tuple(reader.lost[:_PLACES_KEPT]))


class _Reader:
    """Makes documents of records and counts what is none."""

    def __init__(self, config: SourceConfig) -> None:
        self.records = 0
        self.kept = 0
        self.dropped: Counter[str] = Counter()
        self.lost: list[str] = []
        self._config = config
        self._ids: set[str] = set()

    def documents(self, task: _Task) -> Iterator[Document]:
        """The documents of a task."""
        from marin.data.sources.rows import Lost

        for name, row in _rows(task):
            self.records += 1
            if isinstance(row, Lost):
                self.dropped[row.reason] += 1
                self.lost.append(row.place)
                continue
            document = self._document(name, row.place, row.fields)
            if document is None:
                continue
            if document.id in self._ids:
                self.dropped["same_record"] += 1
                continue
            self._ids.add(document.id)
            yield document

    def _document(self, name: str, place: str, fields: Any) -> Document | None:
        config = self._config
        text = fields.get(config.text_field)
        if text is None or text == "":
            self.dropped["no_text"] += 1
            return None
        if not isinstance(text, str):
            self.dropped["wrong_type"] += 1
            return None
        stored = normalise(text)
        reason = self._reason_against(stored.text, stored.stripped)
        if reason is not None:
            self.dropped[reason] += 1
            return None
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

    def _reason_against(self, text: str, stripped: int) -> str | None:
        if not text.strip():
            return "empty_text"
        if stripped > self._config.max_controls * (len(text) + stripped):
            return "binary"
        if text.count("\ufffd") > self._config.max_replaced * len(text):
            return "undecodable"
        return None


def _rows(task: _Task) -> Iterable[tuple[str, Any]]:
    from marin.data.sources.rows import rows_of_dataset, rows_of_file

    if task.config.dataset is not None:
        yield from (("", row) for row in rows_of_dataset(task.config.dataset, task.part))
    for url, name in zip(task.urls, task.names, strict=True):
        # The place of a record must not hang on where its file lies.
        folder = posixpath.dirname(name)
        for row in rows_of_file(task.config.format, url, task.config.text_field):
            yield name, replace(row, place=f"{folder}/{row.place}") if folder else row


def _word(value: Any) -> str | None:
    """A field's value as a word; None when there is none."""
    if value is None or isinstance(value, (dict, list, bytes)):
        return None
    return str(value).strip() or None
