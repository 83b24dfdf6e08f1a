"""Our side of the dedup benchmark, in a process of its own: the real steps on the back end without Ray.

    python operations/bench/dedup_ours.py {signatures,words,whole} DOCUMENTS FOLDER
    python operations/bench/dedup_ours.py {prepare,growth} COUNT FOLDER

Prints one JSON line as `dedup_sides.py` does, with the CPU seconds of each step. The documents are written as pages
before the clock runs; so are, for `growth`, the signals, by `prepare` in another process, because only duplicate
removal is measured there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

import dedup_sides  # noqa: E402  found beside this script

from marin.data.dedup.steps import deduplicate, deduplicate_across  # noqa: E402
from marin.data.documents.artifacts import Attributes, Documents  # noqa: E402
from marin.data.filtering.config import LanguageConfig, MinHashConfig, Rules, SignalConfig, UrlConfig  # noqa: E402
from marin.data.filtering.steps import annotate  # noqa: E402
from marin.execution import Artifact, current_run, materialise, runtime, step  # noqa: E402

SOURCE = "bench"
BATCH = 256
SHARD_ROWS = 50_000

SIGNALS = SignalConfig(
    language=LanguageConfig(keep=(), minimum_score=0.0),
    rules=Rules(repetition=None, words=None, sentences=None, lines=None),
    url=UrlConfig(integrated_lists=False),
)
"""Everything is measured, and every document passes."""


@dataclass(frozen=True)
class File:
    """A file of documents, known by what is in it."""

    digest: str
    path: str = runtime("")


@dataclass(frozen=True)
class Synthetic:
    """So many made-up documents."""

    documents: int


@step("bench/pages", version="1")
def pages_of(config: File) -> Documents:
    """The documents of a file as pages."""
    ids, texts = dedup_sides.read(Path(config.path))
    return _write(zip(ids, texts, strict=True))


@step("bench/synthetic", version="1")
def synthetic_pages(config: Synthetic) -> Documents:
    """Made-up documents: a tenth of one cluster, half in clusters of Zipf-sized numbers, the others alone."""
    import dedup_synthetic

    return _write(dedup_synthetic.documents(config.documents))


@step("bench/synthetic_signals", version="1")
def synthetic_signals(pages: Documents) -> Attributes:
    """What `annotate` measures for duplicate removal, and nothing else."""
    import pyarrow as pa

    from marin.data.documents.attributes import attributes_of, write_attributes
    from marin.data.documents.io import read_shard
    from marin.data.filtering.annotate import comparable_settings
    from marin.data.filtering.minhash import band_keys_of_all, content_hash
    from marin.data.filtering.words import WordTable, plain_hashes_of_all

    table, shards = WordTable(), []
    for shard in pages.shards:
        rows = read_shard(pages, shard, columns=("id", "text"))
        texts = rows.column("text").to_pylist()
        content, bands, counts = [], [], []
        for at in range(0, len(texts), BATCH):
            words = plain_hashes_of_all(texts[at : at + BATCH], table)
            content.extend(map(content_hash, words))
            counts.extend(map(len, words))
            keys = band_keys_of_all(words, MinHashConfig())
            bands.extend(None if one is None else one.astype("<u8").tobytes() for one in keys)
        columns = {
            "id": rows.column("id"),
            "reason": pa.nulls(len(texts), pa.string()),
            "content": pa.array(content, pa.binary()),
            "bands": pa.array(bands, pa.binary()),
            "words": pa.array(counts, pa.int64()),
        }
        settings = comparable_settings(SIGNALS)
        shards.append(
            write_attributes(current_run().write, pages, shard, pa.table(columns), stem="signals", settings=settings)
        )
    return attributes_of("signals", shards)


def _write(documents: Any) -> Documents:
    from marin.data.documents.io import DocumentWriter, documents_of
    from marin.data.documents.schema import Document, text_hash

    shards: list[Any] = []
    writer: DocumentWriter | None = None
    for number, (document_id, text) in enumerate(documents):
        if number % SHARD_ROWS == 0:
            if writer is not None:
                writer.__exit__(None, None, None)
                shards.extend(writer.shards)
            writer = DocumentWriter(current_run().write, f"pages-{number // SHARD_ROWS:04d}", source=SOURCE)
            writer.__enter__()
        assert writer is not None
        url = f"http://{SOURCE}.invalid/{document_id}"
        writer.write(Document(document_id, text, text_hash(text), SOURCE, url))
    if writer is not None:
        writer.__exit__(None, None, None)
        shards.extend(writer.shards)
    return documents_of(SOURCE, shards)


def signatures(documents: Path, folder: Path, clock: dedup_sides.Clock) -> dict[str, Any]:
    """All that the step of signals measures of texts, and their signatures."""
    from marin.data.filtering.features import measure_all
    from marin.data.filtering.minhash import band_keys_of_all
    from marin.data.filtering.words import WordTable

    _, texts = dedup_sides.read(documents)
    table = WordTable()
    with clock.running():
        for at in range(0, len(texts), BATCH):
            measured = measure_all(texts[at : at + BATCH], table)
            band_keys_of_all([features.plain_words for features in measured], MinHashConfig())
    return {}


def words(documents: Path, folder: Path, clock: dedup_sides.Clock) -> dict[str, Any]:
    """The words of texts and their signatures, without any other feature."""
    from marin.data.filtering.minhash import band_keys_of_all
    from marin.data.filtering.words import WordTable, plain_hashes_of_all

    _, texts = dedup_sides.read(documents)
    table = WordTable()
    with clock.running():
        for at in range(0, len(texts), BATCH):
            band_keys_of_all(plain_hashes_of_all(texts[at : at + BATCH], table), MinHashConfig())
    return {}


def whole(documents: Path, folder: Path, clock: dedup_sides.Clock) -> dict[str, Any]:
    """Signals, duplicates within the source and across sources."""
    few = folder / "few.jsonl"
    few.write_text("".join(documents.read_text().splitlines(keepends=True)[:20]))
    # What is imported and loaded late is so before the clock runs, as for the other sides.
    _whole(few, folder / "few", dedup_sides.Clock())
    return _whole(documents, folder / "all", clock)


def _whole(documents: Path, folder: Path, clock: dedup_sides.Clock) -> dict[str, Any]:
    digest = hashlib.sha256(documents.read_bytes()).hexdigest()
    pages = pages_of(File(digest, str(documents)))
    materialise(pages, prefix=str(folder))
    signals = annotate(pages, SIGNALS)
    seconds = {"signals": _made(signals, folder, clock)}
    return {"removed": _deduplicated(pages, signals, folder, clock, seconds), "seconds": seconds}


def prepare(count: int, folder: Path, clock: dedup_sides.Clock) -> dict[str, Any]:
    """Made-up documents with their signals."""
    materialise(synthetic_signals(synthetic_pages(Synthetic(count))), prefix=str(folder))
    return {}


def growth(count: int, folder: Path, clock: dedup_sides.Clock) -> dict[str, Any]:
    """Duplicates within the source and across sources, of made-up documents that are prepared."""
    few = folder / "few"
    few_pages = synthetic_pages(Synthetic(100))
    _deduplicated(few_pages, synthetic_signals(few_pages), few, dedup_sides.Clock(), {})
    pages = synthetic_pages(Synthetic(count))
    signals = synthetic_signals(pages)
    seconds: dict[str, float] = {}
    removed = _deduplicated(pages, signals, folder, clock, seconds)
    return {"removed": [], "documents_removed": len(removed), "seconds": seconds}


def _deduplicated(
    pages: Documents, signals: Attributes, folder: Path, clock: dedup_sides.Clock, seconds: dict[str, float]
) -> dict[str, str]:
    within = deduplicate(pages, signals)
    seconds["within"] = _made(within, folder, clock)
    across = deduplicate_across([pages], [signals], [within])
    seconds["across"] = _made(across, folder, clock)
    return _removals(materialise(across, prefix=str(folder)))


def _made(artifact: Artifact, folder: Path, clock: dedup_sides.Clock) -> float:
    before = clock.seconds
    with clock.running():
        materialise(artifact, prefix=str(folder))
    return round(clock.seconds - before, 3)


def _removals(verdicts: Attributes) -> dict[str, str]:
    """The kept document of each removed one."""
    import pyarrow.parquet as pq

    found: dict[str, str] = {}
    for shard in verdicts.shards:
        columns: dict[str, Sequence[Any]] = pq.read_table(
            verdicts.local(shard.name), columns=["id", "reason", "duplicate_of"]
        ).to_pydict()
        for document_id, reason, kept in zip(*columns.values(), strict=True):
            if reason is not None:
                found[document_id] = kept
    return found


def main() -> int:
    """Do the work and print its figures."""
    parser = argparse.ArgumentParser(description="our side of the dedup benchmark")
    on_files = {"signatures": signatures, "words": words, "whole": whole}
    on_numbers = {"prepare": prepare, "growth": growth}
    parser.add_argument("side", choices=[*on_files, *on_numbers])
    parser.add_argument("given", help="a file of documents, or a number of them")
    parser.add_argument("folder", type=Path)
    request = parser.parse_args()
    clock = dedup_sides.Clock()
    if request.side in on_numbers:
        figures = on_numbers[request.side](int(request.given), request.folder, clock)
    else:
        figures = on_files[request.side](Path(request.given), request.folder, clock)
    print(json.dumps({"cpu": clock.seconds, "peak_mb": dedup_sides.peak_mb(), **figures}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
