"""The whole graph at the smoke scale: it runs, is skipped when it is done, and reruns exactly what has changed."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.pipeline.running import ROOT, listing, record, records, run, run_and_list_modules

STEPS = 28
HEAVY = {"ray", "torch", "lm_eval", "datatrove", "transformers", "gcsfs", "s3fs"}


def planned(output: str) -> dict[str, str]:
    """What a dry run says of each step, by name and label."""
    rows = re.findall(r"^(\S+)-[0-9a-f]{10}(?: \((\S+)\))?\s+[0-9a-f]{16}\s+\S+\s+(.*)$", output, flags=re.MULTILINE)
    return {f"{name} {label}".strip(): action for name, label, action in rows}


@pytest.mark.ray
def test_the_run_leaves_a_record_of_every_step_and_evidence_that_nothing_was_lost(smoke_prefix: Path) -> None:
    done = records(smoke_prefix)
    assert len(done) == STEPS
    for body in done.values():
        for flow in body["flows"]:
            assert flow["read"] == flow["kept"] + sum(flow["dropped"].values())
        for file in body["files"]:
            assert (smoke_prefix / file["key"]).stat().st_size == file["size"]


@pytest.mark.ray
def test_the_trained_model_is_better_than_unigrams_and_every_step_of_it_is_logged_once(smoke_prefix: Path) -> None:
    pretrain = record(smoke_prefix, "model/pretrain")
    result = pretrain["result"]
    assert result["validation_loss"] < result["unigram_loss"]
    metrics = next(file for file in pretrain["files"] if file["name"] == "metrics.jsonl")
    lines = [json.loads(line) for line in (smoke_prefix / metrics["key"]).read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 31))


@pytest.mark.ray
def test_a_second_run_prints_the_result_imports_nothing_heavy_and_writes_nothing(smoke_prefix: Path) -> None:
    before = listing(smoke_prefix)
    output, modules = run_and_list_modules("--scale", "smoke", "--prefix", str(smoke_prefix))
    assert f"nothing to do: {STEPS} of {STEPS} steps are cached" in output
    assert "heldout_choice" in output and "unigrams" in output
    assert not modules & HEAVY
    assert listing(smoke_prefix) == before


@pytest.mark.ray
def test_a_changed_setting_reruns_exactly_what_depends_on_it_and_the_plan_says_why(smoke_prefix: Path) -> None:
    result = run(smoke_prefix, "--dry-run", "--training.steps", "31")
    actions = planned(result.stdout)
    assert len(actions) == STEPS
    running = {name: action for name, action in actions.items() if action != "cached"}
    assert set(running) == {"model/pretrain", "evaluations/report"}
    assert "training.steps 30 → 31" in running["model/pretrain"]
    assert "upstream model/pretrain" in running["evaluations/report"]


@pytest.mark.ray
def test_a_comment_reruns_nothing_and_a_bumped_version_reruns_the_step_and_its_dependents(
    smoke_prefix: Path, tmp_path: Path
) -> None:
    for name in ("marin", "experiments"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    steps = tmp_path / "marin/tokens/mixture/steps.py"
    source = steps.read_text()
    steps.write_text(source.replace("    run = current_run()", "    # why not\n    run = current_run()", 1))
    commented = planned(run(smoke_prefix, "--dry-run", code=tmp_path).stdout)
    assert len(commented) == STEPS and set(commented.values()) == {"cached"}
    assert source.count('@step("tokens/mixture", version="3",') == 1
    steps.write_text(source.replace('@step("tokens/mixture", version="3",', '@step("tokens/mixture", version="4",'))
    bumped = planned(run(smoke_prefix, "--dry-run", code=tmp_path).stdout)
    running = {name: action for name, action in bumped.items() if action != "cached"}
    assert set(running) == {"tokens/mixture", "model/pretrain", "evaluations/report"}
    assert "version '3' → '4'" in running["tokens/mixture"]


@pytest.mark.ray
def test_the_effective_config_that_a_run_kept_plans_the_same_graph(smoke_prefix: Path) -> None:
    kept = next((smoke_prefix / "_runs").glob("*/config.yaml"))
    actions = planned(run(smoke_prefix, "--dry-run", "--config", str(kept)).stdout)
    assert len(actions) == STEPS and set(actions.values()) == {"cached"}


def test_the_hero_is_planned_offline_without_importing_anything_heavy(tmp_path: Path) -> None:
    output, modules = run_and_list_modules("--scale", "hero", "--dry-run", "--prefix", str(tmp_path / "none"))
    assert "model/pretrain" in output
    assert not modules & HEAVY
    assert not (tmp_path / "none").exists()
