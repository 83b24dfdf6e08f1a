"""`marin watch`, `marin alerts` and `marin profile-diff` over what a run left in a store."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from marin.checkpoint.completeness import FinishMark, WrittenFile
from marin.checkpoint.layout import FINISH_MARK, PROGRESS, TENSOR_INDEX, folder_of
from marin.checkpoint.progress import Progress
from marin.cli.main import main
from marin.training.metrics import MetricsLog
from marin.training.watch.profile_summary import Operator, ProfileSummary
from tests.checkpoint.holder import holder
from tests.training.segments import closed


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    said = capsys.readouterr()
    assert ended.value.code == 0, said.err
    return said.out.splitlines()


def line(step: int, ago: float, **figures: Any) -> dict[str, Any]:
    return {
        "step": step,
        "time": time.time() - ago,
        "loss": 5.0 - step / 10,
        "gradient_norm": 0.5,
        "tokens_per_s": 812.0,
        "mfu": 0.4,
        "skipped": False,
        **figures,
    }


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    """A run saved after step 3 of which steps 4 and 5 are known by its live lines alone; once it hung."""
    state = holder(str(tmp_path)).state
    log = MetricsLog(state)
    for step in (1, 2, 3):
        log.append(step, line(step, 100 - step))
    progress = Progress(
        step=3,
        next_sequence=24,
        tokens=300,
        updates=3,
        skipped_in_a_row=0,
        metrics=closed(log),
        validations=({"step": 2, "time": 0.0, "loss": 4.9}, {"step": 3, "time": 1.0, "loss": 5.25}),
        random_states=(),
        identity={},
        parts={},
    )
    files = {PROGRESS: progress.to_bytes(), TENSOR_INDEX: b"no tensors"}
    for name, data in files.items():
        state.create(f"{folder_of(3)}/{name}", data)
    written = (WrittenFile(name=name, size=len(data), sha256="0" * 64) for name, data in files.items())
    mark = FinishMark(step=3, files=tuple(written))
    state.create(f"{folder_of(3)}/{FINISH_MARK}", mark.to_bytes())
    live = [line(3, 97), line(4, 60), line(5, 30, gradient_norm=2.5)]
    state.create("live/20261130T120000-abcdef.jsonl", "".join(json.dumps(one) + "\n" for one in live).encode())
    state.create("stalls/step-00000002-rank-0000-x.txt", b"stacks")
    return str(tmp_path)


def test_watch_shows_where_a_run_stands_by_its_newest_lines(
    prefix: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said = run(capsys, "watch", "--prefix", prefix, "--tensorboard", str(tmp_path / "curves"))
    assert said[0] == "run         model/pretrain/test"
    assert re.match(r"step        5, 3\d s ago: loss 4\.5000, gradient norm 2\.500, 812 tokens/s, MFU 40\.0%", said[1])
    assert re.match(r"checkpoint  step 3: 2 steps, [12] min \d+ s ago", said[2])
    assert said[3] == "evaluation  step 3: 5.2500 nats per token"
    assert [text.split()[2] for text in said if text.startswith("alert")] == ["gradient_norm", "evaluation_worse"]
    assert said[-2] == "stall       model/pretrain/test/state/000001/stalls/step-00000002-rank-0000-x.txt"

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(tmp_path / "curves")).Reload()
    assert [event.step for event in read.Scalars("loss")] == [1, 2, 3, 4, 5]


def test_alerts_are_told_for_a_run_and_for_a_file_of_lines(
    prefix: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    said = run(capsys, "alerts", "model/pretrain", "--prefix", prefix)
    assert [text.split("alert ")[1].split()[0] for text in said] == ["evaluation_worse", "gradient_norm"]
    file = tmp_path / "metrics.jsonl"
    file.write_text("".join(json.dumps(line(step, 100 - step)) + "\n" for step in range(1, 9)))
    assert run(capsys, "alerts", str(file), "--prefix", prefix) == ["no alert"]


def test_profiles_are_compared_by_file_or_by_run(
    prefix: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def made(seconds: float) -> bytes:
        operators = (Operator("aten::mm", "cpu", 1.0, seconds),)
        return ProfileSummary(1, 1, "cpu", 1, seconds, 10.0, 1e9, 2e9, {"forward": seconds}, {}, operators).to_bytes()

    holder(prefix).state.create("profiles/step-00000005/summary.json", made(0.5))
    (tmp_path / "after.json").write_bytes(made(0.25))
    said = run(capsys, "profile-diff", "model/pretrain", str(tmp_path / "after.json"), "--prefix", prefix)
    assert said[0] == "Step: 0.5 s → 0.25 s (-50.0%)."
    assert "| `aten::mm` on cpu | 500 | 250 | -250 (-50.0%) |" in said


def test_what_is_not_there_is_named(prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["watch", "model/other"], ["profile-diff", "model/pretrain", "model/pretrain"]):
        with pytest.raises(SystemExit) as ended:
            main([*command, "--prefix", prefix])
        assert ended.value.code == 1
        assert command[1] in capsys.readouterr().err
