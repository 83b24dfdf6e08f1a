"""`torchrun -m marin.training`: the same step as under a gang, whoever starts its ranks."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from marin.checkpoint.artifacts import Checkpoint
from marin.execution import StopRequest, make_plan, materialise
from marin.execution.running.call_file import call_file
from marin.storage import open_store
from marin.training.__main__ import run
from marin.training.environment import RankEnvironment
from tests.training.test_loop import SAME_EVERYWHERE
from tests.training.test_pretrain import TRAINING, fixed_tokenizer, graph, heldout_of, mixture_of
from tests.training.toy import VOCABULARY

LONG = replace(TRAINING, steps=60, log_every=1)


def job_file(training: Any, prefix: str, path: Path) -> Path:
    """The job of a run whose inputs are made here."""
    for inputs in (mixture_of(), *heldout_of().values(), fixed_tokenizer(VOCABULARY)):
        materialise(inputs, prefix=prefix)
    store = open_store(prefix)
    (step,) = make_plan([graph(training, workers=7)], store).targets
    path.write_text(yaml.safe_dump(call_file(step, store), sort_keys=False))
    return path


def torchrun(job: Path, ranks: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    arguments = ["-m", "marin.training", "--config", str(job)]
    return subprocess.Popen([*command, *arguments], stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True)


def curve(checkpoint: Checkpoint) -> list[dict[str, Any]]:
    lines = [json.loads(text) for text in checkpoint.read("metrics.jsonl").splitlines()]
    return [{name: line[name] for name in ("step", *SAME_EVERYWHERE)} for line in lines]


def test_a_preempted_run_goes_on_under_torchrun_and_its_record_is_the_one_of_the_graph(tmp_path: Path) -> None:
    prefix = str(tmp_path / "prefix")
    job = job_file(LONG, prefix, tmp_path / "job.yaml")
    first = torchrun(job, 2)
    assert first.stdout is not None
    said = ""
    for line in first.stdout:
        said += line
        if "step 3 of 60" in line:
            first.send_signal(signal.SIGTERM)
            break
    said += first.stdout.read()
    assert first.wait(60) != 0
    assert "stopped after step" in said, said
    store = open_store(prefix)
    state = {info.key for info in store.list("model/pretrain") if "/state/" in info.key}
    saved = sorted(key.split("/")[-2] for key in state if key.endswith("COMPLETE.json"))
    assert 3 <= int(saved[-1].removeprefix("step-")) < 60

    second = torchrun(job, 2)
    said = second.communicate(timeout=120)[0]
    assert second.returncode == 0, said
    assert f"resumed from the checkpoint of step {int(saved[-1].removeprefix('step-'))}" in said
    assert not make_plan([graph(LONG, workers=2)], store).to_do()
    checkpoint = materialise(graph(LONG, workers=2), prefix=prefix)
    inline = materialise(graph(LONG, workers=2), prefix=str(tmp_path / "inline"))
    assert curve(checkpoint) == curve(inline)
    assert checkpoint.validation_losses == inline.validation_losses
    for name in ("validation.json", "curve.svg", "checkpoint/COMPLETE.json"):
        assert checkpoint.read(name)


def test_a_job_that_does_not_fit_its_ranks_is_told_and_exits_with_1(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = job_file(LONG, str(tmp_path / "prefix"), tmp_path / "job.yaml")
    alone = RankEnvironment(rank=0, world_size=1, local_rank=0, local_world_size=1)
    assert run(job, alone, StopRequest()) == 1
    assert "parallel plan" in caplog.text
    described = yaml.safe_load(job.read_text())
    job.write_text(yaml.safe_dump({**described, "version": "0"}))
    assert run(job, alone, StopRequest()) == 1
    assert "write the file with this version of the project" in caplog.text
