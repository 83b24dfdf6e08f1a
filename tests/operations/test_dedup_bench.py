"""The dedup benchmark plants what it says, knows the truth, and compares in the right direction."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from tests.data.dedup.texts import prose
from tests.operations.scripts import BENCH, loaded


@pytest.fixture(scope="module")
def inputs() -> ModuleType:
    return loaded("dedup_inputs")


@pytest.fixture(scope="module")
def peers() -> ModuleType:
    return loaded("dedup_peers")


@pytest.fixture(scope="module")
def bench(inputs: ModuleType, peers: ModuleType) -> ModuleType:
    return loaded("dedup")


@pytest.fixture(scope="module")
def words() -> list[str]:
    return " ".join(prose(number, sentences=40) for number in range(120)).split()


def test_copies_are_planted_in_the_shares_that_are_named(inputs: ModuleType, words: list[str]) -> None:
    texts = inputs.planted(words, 100)
    assert texts == inputs.planted(words, 100)
    assert len({text.id for text in texts}) == 100
    groups = Counter(text.group for text in texts)
    assert len(groups) == 70 and groups[0] == 11
    plain = Counter(" ".join(text.text.lower().split()) for text in texts)
    assert sum(count - 1 for count in plain.values()) >= 8
    assert all(150 <= len(text.text.split()) <= 400 for text in texts)


def test_too_few_words_are_told(inputs: ModuleType, words: list[str]) -> None:
    with pytest.raises(SystemExit, match="name more files"):
        inputs.planted(words[:2000], 100)


def test_words_are_read_from_json_lines_and_plain_text(inputs: ModuleType, tmp_path: Path) -> None:
    lines, plain = tmp_path / "a.jsonl", tmp_path / "b.txt"
    lines.write_text(json.dumps({"text": "one two\u2028three"}) + "\n" + json.dumps({"text": "four"}) + "\n")
    plain.write_text("five\nsix")
    assert inputs.words_of([lines, plain]) == ["one", "two", "three", "four", "five", "six"]


def test_one_of_each_group_has_to_stay_whichever_it_is(inputs: ModuleType) -> None:
    texts = [inputs.Text(str(number), "", group) for number, group in enumerate((0, 0, 0, 1, 1, 2))]
    judged = [inputs.judge(texts, removed) for removed in ({"0", "2", "3"}, {"0"}, {"3", "4", "5"})]
    assert [(one.recall, one.lost) for one in judged] == [(1.0, 0), (round(1 / 3, 4), 0), (round(1 / 3, 4), 2)]


def test_similar_pairs_are_those_of_sets_compared_one_by_one(inputs: ModuleType) -> None:
    draw = random.Random(0)
    texts = [
        inputs.Text(str(number), " ".join(draw.choice("abc") for _ in range(draw.randint(0, 12))), 0)
        for number in range(60)
    ]
    expected = set()
    for one, other in itertools.combinations(texts, 2):
        here, there = inputs.grams(one.text, 2), inputs.grams(other.text, 2)
        if here | there and len(here & there) / len(here | there) >= 0.6:
            expected.add((one.id, other.id))
    found = {(one, other) for one, other, _ in inputs.similar_pairs(texts, 0.6, size=2)}
    assert found == expected and len(found) > 20


def test_truth_counts_pairs_of_which_both_stayed_and_removals_without_ground(inputs: ModuleType) -> None:
    text, other = prose(1), prose(2)
    texts = [inputs.Text(name, of, 0) for name, of in (("a", text), ("b", text), ("c", other), ("d", other))]
    found = inputs.truth(texts, {"b": "a"}, 0.8, 0.75)
    assert (found["pairs"], found["recall"], found["precision"]) == (2, 0.5, 1.0)
    assert inputs.truth(texts, {"b": "c"}, 0.8, 0.75)["precision"] == 0.0
    assert inputs.truth(texts, {"b": "a", "a": "b"}, 0.8, 0.75)["precision"] == 0.0  # neither stays


def test_made_up_documents_have_one_giant_cluster_and_smaller_ones_of_half() -> None:
    sizes = loaded("dedup_synthetic").cluster_sizes(10_000)
    assert sizes.sum() == 10_000 and sizes[0] == 1000
    clustered = sizes[1:][sizes[1:] > 1]
    assert abs(int(clustered.sum()) - 5000) <= 1
    assert clustered[0] == 500 and clustered[9] == 50


def test_made_up_copies_are_contained_in_their_originals(inputs: ModuleType) -> None:
    synthetic = loaded("dedup_synthetic")
    texts = dict(synthetic.documents(200))
    assert len(texts) == 200
    grams = [inputs.grams(text, 3) for text in texts.values()]
    near = sum(any(len(one & other) >= 0.75 * len(one) for other in grams if other is not one) for one in grams)
    assert near >= 20 + 90


def test_a_side_that_fails_has_its_reason_and_the_best_turn_of_the_others_counts(
    peers: ModuleType, tmp_path: Path
) -> None:
    burning = "import time, json\nwhile time.process_time() < 0.05: pass\nprint(json.dumps({'cpu': 1, 'peak_mb': 2}))"
    sides = {
        "ours": peers.Side("ours", (sys.executable, "-c", burning)),
        "broken": peers.Side("broken", (sys.executable, "-c", "raise SystemExit('no such thing')")),
        "absent": "exited 1: no wheel",
    }
    found = peers.race(sides, "documents", tmp_path / "f", rounds=2)
    assert (found["ours"].cpu, found["ours"].peak_mb) == (1, 2)
    assert "no such thing" in found["broken"]
    assert found["absent"] == "exited 1: no wheel"


def test_a_peer_that_needs_more_gives_a_ratio_above_one(bench: ModuleType) -> None:
    assert bench.row("whole", 2.0, 5.0, "s cpu", "", less=True)["ratio"] == 2.5
    assert bench.row("signatures", 200.0, 50.0, "docs/s", "", less=False)["ratio"] == 4.0
    assert bench.row("growth", 2.0, None, "ms", "", less=True)["ratio"] is None


def test_a_small_round_of_ours_removes_the_copies_and_prints_rows(words: list[str], tmp_path: Path) -> None:
    text = tmp_path / "texts.txt"
    text.write_text(" ".join(words))
    done = subprocess.run(
        [
            sys.executable, str(BENCH / "dedup.py"), "--text", str(text), "--documents", "80", "--rounds", "1",
            "--peers", "--sizes", "100", "--only", "whole", "growth",
        ],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    whole, growth = map(json.loads, done.stdout.splitlines())
    assert whole["result"]["recall"] >= 0.9 and whole["result"]["lost"] == 0
    assert whole["peer"] is whole["ratio"] is None
    assert whole["ours"] > 0 and set(whole["steps"]) == {"signals", "within", "across"}
    assert growth["times_the_smallest"] == 1.0 and growth["removed"] >= 35
