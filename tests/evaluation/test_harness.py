"""lm-eval over local files: figures equal those worked out by hand from the same scores."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import yaml

from marin.evaluation.adapter import TrainedModel
from marin.evaluation.framing import Framer
from marin.evaluation.harness import TaskFolders
from marin.evaluation.results import configurations, document_records, strict_json_lines, task_results
from marin.evaluation.tasks import CHOICE, ROLLING, write_choice_task, write_rolling_task
from marin.execution import StepError
from tests.evaluation.doubles import BYTES, ByteCodec, EchoGenerator, FavouriteScorer, UniformScorer


def item(index: int, choices: list[str], answer: int) -> dict[str, object]:
    return {"id": str(index), "source": "s", "context": "Q", "choices": choices, "answer": answer, "document_id": "d"}


def run(folder: Path, name: str, scorer, limit=None, sink=None):
    model = TrainedModel(Framer(ByteCodec(), 64), scorer, EchoGenerator(), sink=sink)
    return TaskFolders([folder]).run(model, name, limit=limit, bootstrap_iterations=10).results, model


def only(results, metric: str):
    (task,) = task_results(results)
    (found,) = [m for m in task.metrics if m.name == metric]
    return task, found


def test_accuracy_chance_and_error_of_the_choice_task(tmp_path):
    items = [
        item(0, ["x", "y"], 0),
        item(1, ["x", "y"], 1),
        item(2, ["y", "x", "z", "w"], 1),
        item(3, ["y", "z", "x", "w"], 2),
    ]
    assert write_choice_task(tmp_path, items)
    results, model = run(tmp_path, CHOICE, FavouriteScorer("x"))
    task, acc = only(results, "acc")
    assert (task.name, task.group, task.samples, task.shots) == (CHOICE, False, 4, 0)
    assert acc.value == pytest.approx(3 / 4)
    assert acc.stderr == pytest.approx(math.sqrt(0.75 * 0.25 / 3))
    assert acc.chance == pytest.approx((1 / 2 + 1 / 2 + 1 / 4 + 1 / 4) / 4)
    assert acc.higher_is_better is True
    assert model.counts.answers == 12


def test_bits_per_byte_of_the_rolling_task(tmp_path):
    documents = [
        {"id": str(n), "source": "s", "text": text, "document_id": str(n)}
        for n, text in enumerate(["plain", "mehr Übung", "long " * 60])
    ]
    assert write_rolling_task(tmp_path, documents)
    results, model = run(tmp_path, ROLLING, UniformScorer())
    task, bits = only(results, "bits_per_byte")
    assert bits.value == pytest.approx(math.log2(BYTES))  # one byte a token, each a uniform guess
    assert bits.stderr is None
    assert task.samples == 3
    assert model.counts.documents == 3
    assert model.counts.windowed_documents == 1


def test_an_empty_evaluation_set_writes_no_task(tmp_path):
    assert not write_choice_task(tmp_path, [])
    assert not write_rolling_task(tmp_path, [])
    assert list(tmp_path.iterdir()) == []


def test_a_generation_task_from_a_folder_is_answered_and_recorded(tmp_path):
    rows = [{"question": "say this", "target": "say this"}, {"question": "and that", "target": "something else"}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    task = {
        "task": "say",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(tmp_path / "rows.jsonl")}},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "question",
        "doc_to_target": "target",
        "generation_kwargs": {"until": ["\n"], "max_gen_toks": 8},
        "metric_list": [{"metric": "exact_match", "aggregation": "mean", "higher_is_better": True}],
    }
    (tmp_path / "say.yaml").write_text(yaml.safe_dump(task))
    kept = {}
    results, model = run(tmp_path, "say", UniformScorer(), sink=kept.__setitem__)
    _, exact = only(results, "exact_match")
    assert exact.value == pytest.approx(0.5)
    assert exact.chance is None
    assert [r["text"] for r in kept["generate_until"]] == ["say this", "and that"]
    assert model.counts.prompts == 2


def test_records_tell_no_place_of_this_machine(tmp_path):
    write_choice_task(tmp_path, [item(0, ["x", "y"], 0)])
    results, _ = run(tmp_path, CHOICE, FavouriteScorer("x"))
    text = strict_json_lines([configurations(results), *document_records(results)]).decode()
    assert str(tmp_path) not in text
    assert '"target_delimiter": " "' in text


def test_an_unknown_task_is_named_with_those_that_exist(tmp_path):
    write_choice_task(tmp_path, [item(0, ["x", "y"], 0)])
    with pytest.raises(StepError, match=f"defines the task 'hellaswag'; defined are {CHOICE}"):
        TaskFolders([tmp_path]).check(["hellaswag"])
    with pytest.raises(StepError, match="no folder on this machine"):
        TaskFolders([tmp_path / "absent"])


def test_scores_are_stored_even_when_the_aggregation_fails(tmp_path, monkeypatch):
    def fails(*args, **kwargs):
        raise ArithmeticError("no aggregation today")

    write_choice_task(tmp_path, [item(0, ["x", "y"], 0)])
    monkeypatch.setattr("lm_eval.evaluator._process_results", fails)
    kept = {}
    with pytest.raises(ArithmeticError):
        run(tmp_path, CHOICE, FavouriteScorer("x"), sink=kept.__setitem__)
    assert [record["answer"] for record in kept["loglikelihood"]] == [" x", " y"]


def test_a_chat_template_is_refused():
    model = TrainedModel(Framer(ByteCodec(), 64), UniformScorer(), EchoGenerator())
    with pytest.raises(NotImplementedError, match="no chat template"):
        model.apply_chat_template([{"role": "user", "content": "hi"}])
