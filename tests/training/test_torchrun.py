"""`torchrun -m marin.training`: the same step as under a gang, whoever starts its ranks."""

from __future__ import annotations

import json
import os
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
from marin.training.job import TrainingJob
from marin.training.stopping import EXIT_CODE
from tests.training.rank_pool import shared_pool
from tests.training.test_continuation import Life, live
from tests.training.test_continuation import curve as lines_of
from tests.training.test_pretrain import TRAINING, fixed_tokenizer, graph, heldout_of, mixture_of
from tests.training.toy import VOCABULARY, toy_model

pytestmark = pytest.mark.slow

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


def ranks_of(launcher: int) -> list[int]:
    """The processes that the launcher started to run ranks."""
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    return [int(child) for child in children if "marin.training" in Path(f"/proc/{child}/cmdline").read_text()]


def curve(checkpoint: Checkpoint) -> list[dict[str, Any]]:
    return lines_of([json.loads(text) for text in checkpoint.read("metrics.jsonl").splitlines()])


def undisturbed(inputs: str, prefix: str) -> list[dict[str, Any]]:
    """The curve of the same job in ranks that stand by, under no launcher, from the inputs of another prefix."""
    job = TrainingJob(
        mixture=materialise(mixture_of(), prefix=inputs),
        heldout={name: materialise(shards, prefix=inputs) for name, shards in heldout_of().items()},
        model=toy_model(),
        training=LONG,
    )
    return lines_of(shared_pool().run(live, Life(job, prefix), 2)[0].lines)


def test_a_preempted_run_goes_on_under_torchrun_and_its_record_is_the_one_of_the_graph(tmp_path: Path) -> None:
    prefix = str(tmp_path / "prefix")
    job = job_file(LONG, prefix, tmp_path / "job.yaml")
    first = torchrun(job, 2)
    assert first.stdout is not None
    said = ""
    for line in first.stdout:
        said += line
        if "step 3 of 60" in line:
            os.kill(max(ranks_of(first.pid)), signal.SIGTERM)
            break
    said += first.stdout.read()
    assert first.wait(60) != 0
    assert "stopped after step" in said, said
    assert said.count(f"exitcode  : {EXIT_CODE} ") == 2, said
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
    assert curve(checkpoint) == undisturbed(prefix, str(tmp_path / "undisturbed"))
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
