"""kill -9 of drivers and workers in the middle of the graph: the next run completes, and nothing is done twice."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.pipeline.running import copy_without, events, kill, record, records, run, start, wait_until


def rank_processes(driver: int) -> list[int]:
    """Process ids of the gang's ranks below a driver, by the name that Ray gives their processes."""
    import psutil

    found = []
    for process in psutil.Process(driver).children(recursive=True):
        try:
            if process.cmdline() and process.cmdline()[0].startswith("ray::RankProcess"):
                found.append(process.pid)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


@pytest.mark.ray
def test_killed_while_duplicates_are_removed_the_next_run_completes_and_redoes_nothing(
    smoke_prefix: Path, tmp_path: Path
) -> None:
    prefix = copy_without(smoke_prefix, tmp_path / "p", "documents/duplicates")
    before = records(prefix)
    flags = ("--only", "documents/duplicates")
    driver = start(prefix, *flags)
    wait_until(lambda: any((prefix / "_claims").glob("documents.duplicates-*/*.json")), driver, "a claim")
    kill(driver)
    assert len(records(prefix)) == len(before), "the driver was to be killed before its commit"
    result = run(prefix, *flags)
    assert result.returncode == 0, result.stderr
    after = records(prefix)
    assert {name: after[name] for name in before} == before
    assert (
        record(prefix, "documents/duplicates")["output_digest"]
        == (record(smoke_prefix, "documents/duplicates")["output_digest"])
    )


@pytest.mark.ray
@pytest.mark.slow
def test_stopped_in_training_by_kill_by_sigterm_and_by_a_dead_rank_the_curve_has_no_gap_and_no_double(
    smoke_prefix: Path, tmp_path: Path
) -> None:
    prefix = copy_without(smoke_prefix, tmp_path / "p", "model/pretrain", "evaluations/report")
    before = records(prefix)
    flags = ("--only", "model/pretrain")

    def saved(step: int) -> bool:
        marks = prefix.glob(f"model/pretrain/*/state/*/checkpoints/step-{step:08d}/COMPLETE.json")
        return any(marks)

    driver = start(prefix, *flags)
    wait_until(lambda: saved(10), driver, "a checkpoint")
    kill(driver)
    driver = start(prefix, *flags)
    wait_until(lambda: saved(20), driver, "a second checkpoint")
    driver.send_signal(signal.SIGTERM)
    assert driver.wait(timeout=60) == 130, prefix.with_suffix(".log").read_text()[-3000:]
    claims = sorted((prefix / "_claims").glob("model.pretrain-*/*.json"))
    assert claims[-1].with_suffix(".released").exists()
    driver = start(prefix, *flags)
    wait_until(lambda: bool(rank_processes(driver.pid)), driver, "ranks")
    os.kill(rank_processes(driver.pid)[-1], signal.SIGKILL)
    assert driver.wait(timeout=240) == 0, prefix.with_suffix(".log").read_text()[-3000:]
    after = records(prefix)
    assert {name: after[name] for name in before} == before
    disturbed, undisturbed = record(prefix, "model/pretrain"), record(smoke_prefix, "model/pretrain")
    curves = []
    for root, body in ((prefix, disturbed), (smoke_prefix, undisturbed)):
        key = next(file["key"] for file in body["files"] if file["name"] == "metrics.jsonl")
        curves.append([json.loads(line) for line in (root / key).read_text().splitlines()])
    assert [line["step"] for line in curves[0]] == list(range(1, 31))
    assert [line["loss"] for line in curves[0]] == [line["loss"] for line in curves[1]]
    assert disturbed["result"]["validation_loss"] == undisturbed["result"]["validation_loss"]
    done = [event for event in events(prefix) if event["event"] == "step.done"]
    assert [event["step"] for event in done] == ["model/pretrain"]
