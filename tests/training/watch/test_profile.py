"""The profiled window of a run, its page, and the difference of two."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from marin.execution import StepError
from marin.parallel.config import ParallelPlan
from marin.training.watch.config import ProfileWindow
from marin.training.watch.profile_summary import Operator, ProfileSummary, difference, page
from tests.checkpoint.holder import holder
from tests.training.rank_pool import shared_pool
from tests.training.toy import ToyTask, toy_training, train_toy

MADE = ProfileSummary(
    first_step=5,
    steps=2,
    device="cpu, 1 threads",
    ranks=2,
    seconds=0.5,
    tokens=1000.0,
    flops=2e9,
    peak_flops=8e9,
    phases={"forward": 0.2, "backward": 0.25, "exchange": 0.1},
    memory={"host_resident_gb": 1.5},
    operators=(Operator("aten::mm", "cpu", 12.0, 0.3), Operator("aten::add", "cpu", 40.0, 0.1)),
)


def test_a_window_of_two_ranks_leaves_a_trace_and_a_summary_of_its_steps(tmp_path: Path) -> None:
    training = toy_training(profile=ProfileWindow(start=5, steps=2), steps=8)
    task = ToyTask(str(tmp_path), plan=ParallelPlan(dp_shard=2, ep=2), watched=True, training=training)
    lines = shared_pool().run(train_toy, task, 2)[0].lines
    state = holder(task.prefix).state
    files = {file.name: state.store.read(file.key) for file in state.find("profiles/*")}
    assert sorted(files) == [
        f"profiles/step-00000005/{name}" for name in ("summary.json", "summary.md", "trace.json.gz")
    ]

    summary = ProfileSummary.from_bytes(files["profiles/step-00000005/summary.json"], "here")
    window = lines[4:6]
    assert (summary.first_step, summary.steps, summary.ranks) == (5, 2, 2)
    assert summary.seconds == pytest.approx(sum(line["seconds"]["step"] for line in window) / 2)
    assert summary.tokens == sum(line["tokens"] for line in window) / 2
    assert 0 < summary.exchange_share < 1
    assert {"data", "forward", "backward", "optimizer", "exchange"} <= summary.phases.keys()
    by_name = {one.name: one for one in summary.operators}
    assert by_name["aten::mm"].calls == int(by_name["aten::mm"].calls) > 10, "every step has the same products"
    assert not any(name.startswith("phase/") for name in by_name)
    own = sum(one.seconds for one in summary.operators if one.where == "cpu")
    assert 0 < own < 1.2 * sum(line["seconds"]["step"] for line in window), "own time is counted once"

    events = json.loads(gzip.decompress(files["profiles/step-00000005/trace.json.gz"]))["traceEvents"]
    assert [event["name"] for event in events if event.get("name") == "phase/optimizer"].count("phase/optimizer") == 2
    assert b"# Profile of steps 5 to 6" in files["profiles/step-00000005/summary.md"]


def test_the_page_says_what_a_step_does_and_a_summary_survives_its_file() -> None:
    assert ProfileSummary.from_bytes(MADE.to_bytes(), "here") == MADE
    text = page(MADE)
    assert "One step: 0.5 s, 1000 tokens, 2000 tokens/s, 2e+09 FLOP/s (25.0% of the measured 8e+09)" in text
    assert "| exchange | 0.1000 | 20.0% |" in text
    assert "| `aten::mm` | cpu | 12 | 300.000 | 75.0% |" in text
    with pytest.raises(StepError, match=r"mine\.json is no summary"):
        ProfileSummary.from_bytes(b'{"schema": 1}', "mine.json")


def test_a_difference_lists_the_largest_change_first_and_what_is_new() -> None:
    after = replace(
        MADE,
        seconds=0.4,
        phases={"forward": 0.21, "backward": 0.125},
        operators=(Operator("aten::mm", "cpu", 12.0, 0.29), Operator("aten::bmm", "cpu", 4.0, 0.05)),
    )
    lines = difference(MADE, after).splitlines()
    assert lines[0] == "Step: 0.5 s → 0.4 s (-20.0%)."
    rows = [line for line in lines if line.startswith("| ") and "before" not in line and "---" not in line]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows[:3]] == ["backward", "exchange", "forward"]
    assert rows[3:] == [
        "| `aten::add` on cpu | 100 | 0 | -100 (-100.0%) |",
        "| `aten::bmm` on cpu | 0 | 50 | +50 (new) |",
        "| `aten::mm` on cpu | 300 | 290 | -10 (-3.3%) |",
    ]
