"""One peer of the dedup benchmark on one file of documents, in a process of its own.

    python operations/bench/dedup_sides.py SIDE DOCUMENTS FOLDER

Runs under the interpreter that has the peer, so it imports nothing of the project. Prints one JSON line: CPU seconds of
the work without imports, peak memory in MB, and the ids of what was removed, if that is the work.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SHINGLE, BANDS, ROWS = 5, 14, 8
THRESHOLD = (1 / BANDS) ** (1 / ROWS)
"""The similarity at which such bands find half of all pairs, for peers that want it as a number."""

_WORD = re.compile(r"\w+")


class Clock:
    """CPU seconds of this process and of the children that it waited for."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Count what happens in the block."""
        began = _cpu()
        yield
        self.seconds += _cpu() - began


def _cpu() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def peak_mb() -> float:
    """Largest memory of this process, or of a child that it waited for.

    What the kernel counts as a process's largest memory begins with that of the process that started it; its own
    address space is told apart in its status.
    """
    (own,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return max(int(own.split()[1]), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) / 1024


def read(path: Path) -> tuple[list[str], list[str]]:
    """Ids and texts."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [row["id"] for row in rows], [row["text"] for row in rows]


def datatrove_signatures(documents: Path, folder: Path, clock: Clock) -> None:
    """Words, shingles and signatures, nothing written."""
    from datatrove.pipeline.dedup import MinhashDedupSignature

    block = MinhashDedupSignature(str(folder))
    block.get_signature(block.get_shingles("one text that loads what is loaded late"))
    _, texts = read(documents)
    with clock.running():
        for text in texts:
            shingles = block.get_shingles(text)
            if shingles.size:
                block.get_signature(shingles)


def datatrove_whole(documents: Path, folder: Path, clock: Clock) -> set[str]:
    """The four stages, as its example runs them, in one process; its defaults are the 14 bands of 8 rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.dedup import (
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupFilter,
        MinhashDedupSignature,
    )
    from datatrove.pipeline.readers import ParquetReader
    from datatrove.pipeline.writers import ParquetWriter
    from datatrove.utils.logging import logger

    logger.remove()
    signatures, buckets, removals, kept = (str(folder / name) for name in ("signatures", "buckets", "removals", "kept"))
    MinhashDedupSignature(signatures).get_shingles("one text that loads what is loaded late")

    ids, texts = read(documents)
    (folder / "documents").mkdir()
    pq.write_table(pa.table({"id": ids, "text": texts}), folder / "documents" / "all.parquet")

    def reader() -> Any:
        return ParquetReader(str(folder / "documents"))

    stages: list[tuple[list[Any], int]] = [
        ([reader(), MinhashDedupSignature(signatures)], 1),
        ([MinhashDedupBuckets(signatures, buckets)], BANDS),
        ([MinhashDedupCluster(buckets, removals)], 1),
        ([reader(), MinhashDedupFilter(removals), ParquetWriter(kept)], 1),
    ]
    with clock.running():
        for number, (blocks, tasks) in enumerate(stages):
            LocalPipelineExecutor(blocks, tasks=tasks, workers=1, logging_dir=str(folder / f"logs-{number}")).run()
    return set(ids) - set(pq.read_table(kept).column("id").to_pylist())


def rensa_whole(documents: Path, folder: Path, clock: Clock) -> set[str]:
    """Words by a pattern, signatures and look-ups in memory; nothing is verified. A document that has a candidate
    among those before it goes."""
    from rensa import RMinHash, RMinHashLSH

    ids, texts = read(documents)
    removed = set()
    with clock.running():
        shingles = []
        for text in texts:
            words = _WORD.findall(text.lower())
            shingles.append([" ".join(words[at : at + SHINGLE]) for at in range(max(1, len(words) - SHINGLE + 1))])
        signatures = RMinHash.from_token_sets(shingles, BANDS * ROWS, 1)
        lsh = RMinHashLSH(threshold=THRESHOLD, num_perm=BANDS * ROWS, num_bands=BANDS)
        for number, (document_id, signature) in enumerate(zip(ids, signatures, strict=True)):
            if lsh.query(signature):
                removed.add(document_id)
            else:
                lsh.insert(number, signature)
    return removed


def text_dedup_whole(documents: Path, folder: Path, clock: Clock) -> set[str]:
    """Its MinHash command in this process, without its caches being kept."""
    import datasets
    from text_dedup.minhash import main as command

    datasets.disable_progress_bars()
    ids, _ = read(documents)
    arguments = {
        "path": "json", "data_files": documents, "split": "train", "cache_dir": folder / "cache", "num_proc": 1,
        "output": folder / "kept", "column": "text", "ngram": SHINGLE, "min_length": SHINGLE,
        "num_perm": BANDS * ROWS, "b": BANDS, "r": ROWS, "threshold": THRESHOLD, "batch_size": 10_000,
    }  # fmt: skip
    with clock.running():
        given = [word for name, value in arguments.items() for word in (f"--{name}", str(value))]
        command.main(given, standalone_mode=False)
    return set(ids) - set(datasets.load_from_disk(str(folder / "kept"))["id"])


SIDES: dict[str, Callable[[Path, Path, Clock], set[str] | None]] = {
    "datatrove-signatures": datatrove_signatures,
    "datatrove": datatrove_whole,
    "rensa": rensa_whole,
    "text-dedup": text_dedup_whole,
}


def main() -> int:
    """Run the side and print its figures."""
    parser = argparse.ArgumentParser(description="one peer of the dedup benchmark")
    parser.add_argument("side", choices=SIDES)
    parser.add_argument("documents", type=Path)
    parser.add_argument("folder", type=Path)
    request = parser.parse_args()
    clock = Clock()
    removed = SIDES[request.side](request.documents, request.folder, clock)
    figures = {"cpu": clock.seconds, "peak_mb": peak_mb(), "removed": None if removed is None else sorted(removed)}
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
