"""Measuring documents: one pass over each shard, with every signal computed from the same words.

Imports pyarrow and numpy; import this module inside step bodies only.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from marin.data.documents.artifacts import Attributes, AttributeShard, Documents, DocumentShard
from marin.data.documents.attributes import attributes_of, write_attributes
from marin.data.documents.io import iterate_batches
from marin.data.filtering.config import Rules, SignalConfig
from marin.data.filtering.features import FEATURE_COLUMNS, measure_all
from marin.data.filtering.language import load_identifier
from marin.data.filtering.minhash import band_keys_of_all, content_hash
from marin.data.filtering.personal import PERSONAL_KINDS
from marin.data.filtering.pii import count_personal
from marin.data.filtering.rules import REASONS, UNKNOWN_LANGUAGE, failed_rules
from marin.data.filtering.urls import BlockedUrls, UrlJudge, blocked_urls
from marin.data.filtering.words import WordTable
from marin.execution import Flow, current_run

KIND = "signals"

_NO_RULES = Rules(repetition=None, words=None, sentences=None, lines=None)

_ARROW_TYPES: dict[type, pa.DataType] = {int: pa.int64(), float: pa.float64(), bool: pa.bool_()}

SIGNAL_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("reasons", pa.list_(pa.string())),
        pa.field("language", pa.string()),
        pa.field("language_score", pa.float64()),
        pa.field("url_reason", pa.string()),
        *(pa.field(f"{kind}s", pa.int64()) for kind in PERSONAL_KINDS),
        *(pa.field(name, _ARROW_TYPES[kind]) for name, kind in FEATURE_COLUMNS.items()),
        pa.field("content", pa.binary()),
        pa.field("bands", pa.binary()),
    ]
)
"""Columns of a signals file. ``reason`` is the first of ``reasons``, ``content`` a hash of the plain words, ``bands``
the LSH keys of 8 bytes each; both are null for a text without words. Of a document that was not measured, only the
language and the URL are known."""

_UNMEASURED: dict[str, None] = dict.fromkeys(
    [*FEATURE_COLUMNS, *(f"{kind}s" for kind in PERSONAL_KINDS), "content", "bands"]
)


@dataclass(frozen=True)
class _Task:
    """One document shard to annotate. Pickles."""

    pages: Documents
    shard: DocumentShard
    config: SignalConfig
    blocked: BlockedUrls


@functools.cache
def word_table() -> WordTable:
    """The word table of this process: what one shard's words cost is saved for the next."""
    return WordTable()


@functools.cache
def _reference(rules: Rules) -> Any:
    from marin.data.filtering.reference import ReferenceJudge

    return ReferenceJudge(rules)


def _reasons(row: dict[str, Any], text: str, config: SignalConfig) -> list[str]:
    if config.mode == "fast":
        return failed_rules(row, config.rules, config.language)
    reasons = {*failed_rules(row, _NO_RULES, config.language), *_reference(config.rules).reasons(text)}
    return sorted(reasons, key=REASONS.index)


def signals_of(text: str, url: str | None, config: SignalConfig, urls: UrlJudge) -> dict[str, Any]:
    """All signals of one document but its id. Never raises on any text."""
    return signals_of_all([text], [url], config, urls)[0]


def signals_of_all(
    texts: Sequence[str], addresses: Sequence[str | None], config: SignalConfig, urls: UrlJudge
) -> list[dict[str, Any]]:
    """`signals_of` of each document; measuring many together is what makes it fast."""
    parts = [text[: config.longest_text] for text in texts]
    identifier = load_identifier()
    languages = [identifier.identify(part, config.language) for part in parts]
    chosen = [at for at, found in enumerate(languages) if _is_measured(found.language, config)]
    measured = measure_all([parts[at] for at in chosen], word_table())
    bands = band_keys_of_all([features.plain_words for features in measured], config.minhash)
    results = dict(zip(chosen, zip(measured, bands, strict=True), strict=True))
    rows: list[dict[str, Any]] = []
    for at, (text, url, language) in enumerate(zip(texts, addresses, languages, strict=True)):
        row: dict[str, Any] = {
            "language": language.language,
            "language_score": language.score,
            "url_reason": urls.reason(url),
        }
        if at in results:
            features, keys = results[at]
            row |= features.columns
            row |= {f"{kind}s": count for kind, count in count_personal(features.suspects).items()}
            row["content"] = content_hash(features.plain_words, text[config.longest_text :])
            row["bands"] = None if keys is None else keys.astype("<u8").tobytes()
            reasons = _reasons(row, parts[at], config)
        else:
            row |= _UNMEASURED
            reasons = failed_rules(row, config.rules, config.language)
        rows.append(row | {"reasons": reasons, "reason": reasons[0] if reasons else None})
    return rows


def comparable_settings(config: SignalConfig) -> dict[str, str]:
    """What has to be equal for bands to be compared."""
    bands = {name: str(value) for name, value in asdict(config.minhash).items()}
    return {**bands, "longest_text": str(config.longest_text)}


def _is_measured(language: str, config: SignalConfig) -> bool:
    keep = config.language.keep
    return config.measure == "all" or not keep or language in keep or language == UNKNOWN_LANGUAGE


def annotate_documents(pages: Documents, config: SignalConfig) -> Attributes:
    """Annotate every shard; the body of the step."""
    run = current_run()
    blocked = blocked_urls(_urls(pages), config.url)
    tasks = [_Task(pages, shard, config, blocked) for shard in pages.shards]
    return attributes_of(KIND, run.map(_annotate_shard, tasks))


def _urls(pages: Documents) -> Iterable[str]:
    for shard in pages.shards:
        for batch in iterate_batches(pages, shard, columns=("url",)):
            yield from (url for url in batch.column("url").to_pylist() if url)


def _annotate_shard(task: _Task) -> AttributeShard:
    run = current_run()
    urls = UrlJudge(task.blocked)
    parts: list[pa.RecordBatch] = []
    done = 0
    for batch in iterate_batches(task.pages, task.shard, columns=("id", "text", "url"), batch_rows=256):
        columns = batch.to_pydict()
        rows = [
            {"id": document_id} | signals
            for document_id, signals in zip(
                columns["id"], signals_of_all(columns["text"], columns["url"], task.config, urls), strict=True
            )
        ]
        parts.append(pa.RecordBatch.from_pylist(rows, schema=SIGNAL_SCHEMA))
        done += len(rows)
        run.progress(done, task.shard.rows)
    table = pa.Table.from_batches(parts, schema=SIGNAL_SCHEMA)
    run.account(Flow(unit="documents", read=done, kept=table.num_rows, dropped={}))
    return write_attributes(
        run.write, task.pages, task.shard, table, stem=KIND, settings=comparable_settings(task.config)
    )
