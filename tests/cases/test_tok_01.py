"""tok-01: training is repeatable for any run, thread count, hash seed and order of input."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
from pathlib import Path

from marin.execution import materialise
from marin.tokens.tokenizer.config import SpecialTokens, TokenizerConfig
from marin.tokens.tokenizer.steps import train_tokenizer
from tests.tokens.building import written_documents

TRAIN = """
import hashlib, sys
from marin.tokens.tokenizer.config import SpecialTokens, TokenizerConfig
from marin.tokens.tokenizer.training import train_bpe
lines = open(sys.argv[1], encoding="utf-8").read().splitlines()
config = TokenizerConfig(vocab_size=600, special=SpecialTokens(reserved=0))
print(hashlib.sha256(train_bpe(lines, config).encode()).hexdigest())
"""


def tied_lines() -> list[str]:
    """Lines in which very many pairs of letters are equally frequent."""
    generator = random.Random(0)
    pairs = [left + right for left in "abcdefgh" for right in "abcdefgh"]
    lines = []
    for _ in range(60):
        generator.shuffle(pairs)
        lines.append(" ".join(pairs) + " " + " ".join(first + second for first, second in itertools.pairwise(pairs)))
    return lines


def test_the_file_is_the_same_in_every_process(tmp_path: Path):
    lines = tied_lines()
    (tmp_path / "a.txt").write_text("\n".join(lines))
    (tmp_path / "b.txt").write_text("\n".join(reversed(lines)))
    digests = set()
    for hash_seed, threads, name in ((0, 1, "a"), (1, 2, "a"), (2, 2, "b"), (0, 1, "b"), (3, 4, "a")):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": str(hash_seed),
            "RAYON_NUM_THREADS": str(threads),
            "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false",
        }
        done = subprocess.run(
            [sys.executable, "-c", TRAIN, str(tmp_path / f"{name}.txt")],
            env=environment,
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        )
        digests.add(done.stdout.strip())
    assert len(digests) == 1


def test_the_step_gives_one_file_for_any_order_and_sharding(tmp_path: Path):
    config = TokenizerConfig(vocab_size=500, special=SpecialTokens(reserved=0), sample_bytes=20_000)
    rows = [("docs", "train", 0, line) for line in tied_lines()]
    digests = set()
    for name, order, shard_bytes, shards in (
        ("a", rows, 1 << 20, 1),
        ("b", rows[::-1], 1 << 20, 1),
        ("c", rows, 4_000, 8),
    ):
        documents = written_documents(tuple(order), shard_bytes)
        assert len(materialise(documents, prefix=str(tmp_path / name)).shards) == shards
        tokenizer = materialise(train_tokenizer(documents, config), prefix=str(tmp_path / name))
        assert 19_000 < tokenizer.trained_bytes <= 20_000
        digests.add(tokenizer.sha256)
    assert len(digests) == 1
