"""Figures about a tokenizer: bytes per token beside known ones, vocabulary use, longest tokens."""

from __future__ import annotations

import html
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from marin.tokens.tokenizer.codec import TextCodec

OWN = "this"
"""What the report calls the tokenizer that it is of."""
PROBES_FILE = Path(__file__).with_name("probes.json")
"""Short texts by language, several scripts and code among them, on which tokenizers are compared."""
BATCH_TEXTS = 64


def measure(codec: TextCodec, texts: Iterable[str], used: Counter[int]) -> dict[str, Any]:
    """Bytes per token and tokens per word of some texts; adds the ids they use to ``used``."""
    documents = size = words = tokens = 0
    batch: list[str] = []

    def encode() -> int:
        count = 0
        for ids in codec.encode_batch(batch):
            used.update(ids)
            count += len(ids)
        batch.clear()
        return count

    for text in texts:
        documents += 1
        size += len(text.encode("utf-8", "replace"))
        words += len(text.split())
        batch.append(text)
        if len(batch) == BATCH_TEXTS:
            tokens += encode()
    tokens += encode()
    return {
        "documents": documents,
        "bytes": size,
        "tokens": tokens,
        "bytes_per_token": size / tokens if tokens else None,
        "tokens_per_word": tokens / words if words else None,
    }


Samples = Mapping[tuple[str, ...], Sequence[str]]


def build_report(
    codec: TextCodec,
    by_source: Samples,
    by_language: Samples,
    references: Mapping[str, TextCodec],
    *,
    asked_size: int,
    padded_size: int,
) -> dict[str, Any]:
    """The report as JSON-like data.

    Args:
        codec: the tokenizer.
        by_source: texts by (source, split).
        by_language: texts by (language).
        references: known tokenizers to compare with, by name.
        asked_size: vocabulary size that was configured.
        padded_size: vocabulary size that the model will have.
    """
    used: Counter[int] = Counter()
    every = {OWN: codec, **references}
    rows = _rows(every, by_source, ("source", "split"), used)
    real = codec.real_vocab_size
    learned = [token for token in range(real) if token not in codec.special_ids and len(codec.token_bytes(token)) > 1]
    longest = sorted(learned, key=lambda token: (-len(codec.token_bytes(token)), token))[:50]
    lengths = Counter(len(codec.token_bytes(token)) for token in range(real) if token not in codec.special_ids)
    return {
        "vocabulary": {
            "asked": asked_size,
            "real": real,
            "padded": padded_size,
            "shortfall": max(0, asked_size - real),
            "special": len(codec.special_ids),
            "used_in_samples": len(used),
            "used_share": len(used) / max(1, real - len(codec.special_ids)),
        },
        "sources": rows,
        "languages": _rows(every, by_language, ("language",), Counter()),
        "probes": _rows(every, _probes(), ("probe",), Counter()),
        "longest_tokens": [
            {
                "id": token,
                "bytes": len(codec.token_bytes(token)),
                "text": codec.token_bytes(token).decode("utf-8", "backslashreplace"),
                "uses": used[token],
            }
            for token in longest
        ],
        "token_lengths": {str(length): count for length, count in sorted(lengths.items())},
    }


def _probes() -> Samples:
    found: dict[str, str] = json.loads(PROBES_FILE.read_text("utf-8"))
    return {(name,): [text] for name, text in found.items()}


def _rows(
    codecs: Mapping[str, TextCodec], samples: Samples, names: tuple[str, ...], used: Counter[int]
) -> list[dict[str, Any]]:
    """A row for each kind of text and each tokenizer; `used` counts the ids of the tokenizer itself."""
    return [
        {
            **dict(zip(names, kind, strict=True)),
            "tokenizer": name,
            **measure(codec, texts, used if name == OWN else Counter()),
        }
        for kind, texts in sorted(samples.items())
        for name, codec in codecs.items()
    ]


def render_html(report: Mapping[str, Any]) -> str:
    """The report as a page that needs nothing else."""
    vocabulary = report["vocabulary"]
    summary = "".join(
        f"<tr><th>{html.escape(key)}</th><td>{_show(value)}</td></tr>" for key, value in vocabulary.items()
    )
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Tokenizer</title>"
        "<style>body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem}"
        "table{border-collapse:collapse;margin:1rem 0}"
        "td,th{padding:.2rem .7rem;border-bottom:1px solid #ddd;text-align:left}"
        "</style><h1>Tokenizer</h1>"
        f"<h2>Vocabulary</h2><table>{summary}</table>"
        f"<h2>Bytes per token by source</h2>{_table(report['sources'])}"
        f"<h2>By language</h2>{_table(report['languages'])}<h2>On probes</h2>{_table(report['probes'])}"
        f"<h2>Longest tokens</h2>{_table(report['longest_tokens'])}</html>"
    )


def _table(rows: list[dict[str, Any]]) -> str:
    if not rows:
        return "<p>none</p>"
    head = "".join(f"<th>{html.escape(name)}</th>" for name in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{_show(value)}</td>" for value in row.values()) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def _show(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, int):
        return f"{value:,}"
    return html.escape(repr(value) if isinstance(value, str) else str(value))
