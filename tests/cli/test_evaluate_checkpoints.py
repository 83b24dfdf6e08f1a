"""`marin evaluate-checkpoints`: reports of a run's permanent checkpoints, once each, without the run's end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from marin.checkpoint.artifacts import Checkpoint
from marin.cli import evaluate_checkpoints
from marin.cli.main import main
from marin.evaluation.artifacts import EvalReport, RequestCounts
from marin.evaluation.framing import Framing
from marin.execution import materialise, step
from marin.execution.running.inline import InlineBackend
from marin.storage import open_store
from tests.training.test_continuation import PARENT
from tests.training.test_forks import run_of

EXPERIMENT = """
from tests.cli.test_evaluate_checkpoints import toy_report
from tests.training.test_continuation import PARENT
from tests.training.test_forks import run_of

def build(scale):
    return toy_report(run_of(PARENT), 2)
"""


@step("tests/report", version="1", inline=True)
def toy_report(model: Checkpoint, asked: int) -> EvalReport:
    """A report whose bits per byte are the checkpoint's step."""
    return EvalReport(
        step=model.step,
        tokens=model.tokens,
        validation_loss=None,
        unigram_loss=None,
        bits_per_byte=float(model.step),
        sources=(),
        tasks=(),
        continuations=(),
        framing=Framing(bos_id=None, eos_id=1),
        max_length=asked,
        requests=RequestCounts.total([]),
        samples=(),
    )


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(["evaluate-checkpoints", *arguments])
    return int(ended.value.code or 0), capsys.readouterr().out


def test_each_permanent_checkpoint_is_evaluated_once_while_the_run_has_no_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def inline(*arguments: Any) -> InlineBackend:
        return InlineBackend()

    monkeypatch.setattr(evaluate_checkpoints, "start_backend", inline)
    experiment, prefix = tmp_path / "toy_run.py", str(tmp_path / "prefix")
    experiment.write_text(EXPERIMENT)
    asked = (str(experiment), "--scale", "smoke", "--prefix", prefix)
    code, out = said(capsys, *asked)
    assert code == 0
    assert "has no permanent checkpoint yet" in out

    materialise(run_of(PARENT), prefix=prefix)
    store = open_store(prefix)
    (record,) = [info.key for info in store.list("_steps") if "model.pretrain" in info.key]
    store.delete(record)  # as while the run goes on
    code, out = said(capsys, *asked)
    assert code == 0
    for number in (4, 8, 12):
        assert f"step {number:>9,}  {number}.0000 bits per byte" in out
    reports = {info.key for info in store.list("_steps") if "tests.report" in info.key}
    assert len(reports) == 3
    code, out = said(capsys, *asked)
    assert "step         8  8.0000 bits per byte" in out
    assert {info.key for info in store.list("_steps") if "tests.report" in info.key} == reports
