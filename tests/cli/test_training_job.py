"""`marin training-job`: an experiment's training step as a file."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from marin.cli.main import main
from marin.execution import make_plan, materialise
from marin.execution.running.call_file import read_call
from marin.storage import open_store
from marin.training.steps import pretrain
from tests.training.test_pretrain import TRAINING, fixed_tokenizer, graph, heldout_of, mixture_of
from tests.training.toy import VOCABULARY

EXPERIMENT = """
from dataclasses import replace
from tests.training.test_pretrain import TRAINING, graph

def build(scale):
    return graph(replace(TRAINING, steps=scale.training.steps), 2).label("toy")
"""


def written(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["training-job", *arguments])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def test_the_file_is_the_step_of_the_graph_with_its_finished_inputs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment, prefix = tmp_path / "toy_experiment.py", str(tmp_path / "prefix")
    experiment.write_text(EXPERIMENT)
    asked = (str(experiment), "--scale", "smoke", "--prefix", prefix, "--training.steps", "20")
    code, out, err = written(capsys, *asked)
    assert (code, out) == (1, "")
    assert "lacks inputs that are not there yet" in err

    for inputs in (mixture_of(), *heldout_of().values(), fixed_tokenizer(VOCABULARY)):
        materialise(inputs, prefix=prefix)
    code, out, err = written(capsys, *asked)
    assert (code, err) == (0, "")
    store = open_store(prefix)
    (of_file,) = make_plan([read_call(yaml.safe_load(out), pretrain)], store).targets
    (of_graph,) = make_plan([graph(TRAINING, 2)], store).targets
    assert of_file.identity == of_graph.identity
    assert of_file.call.label == "toy"

    code, _, err = written(capsys, *asked, "--step", "elsewhere")
    assert code == 1
    assert "means 0 of the experiment's training steps (model/pretrain-" in err
