"""Scores without the items that were found in documents, and what of a task's documents is looked for."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from marin.data.evalsets.overlap import COMMON, FOUND, NOT_FOUND, UNCOMPARED, SetOverlap
from marin.evaluation.adapter import TrainedModel
from marin.evaluation.artifacts import Contamination, Metric, TaskResult
from marin.evaluation.contamination import TaskOverlap, further_item, of_sets, own_item, with_contamination
from marin.evaluation.framing import Framer
from marin.evaluation.harness import TaskFolders
from marin.evaluation.results import task_results
from marin.evaluation.task_items import shown
from marin.evaluation.tasks import CHOICE, ROLLING, write_choice_task, write_rolling_task
from tests.evaluation.doubles import BYTES, ByteCodec, EchoGenerator, FavouriteScorer, UniformScorer


def judged(folder: Path, name: str, scorer: Any, overlap: TaskOverlap | None, limit: int | None = None) -> TaskResult:
    model = TrainedModel(Framer(ByteCodec(), 64), scorer, EchoGenerator())
    outcome = TaskFolders([folder]).run(model, name, limit=limit, bootstrap_iterations=0)
    (task,) = with_contamination(task_results(outcome.results), outcome.results, outcome.aggregations, overlap)
    return task


def known(states: dict[str, str]) -> SetOverlap:
    return SetOverlap("heldout", len(states), 9, states, {})


def test_the_clean_score_is_that_of_the_items_that_were_looked_for_and_not_found(tmp_path: Path) -> None:
    # The scorer likes x: right for items 0, 2 and 4.
    rows = [
        {"id": f"i{n}", "source": "s", "context": "Q", "choices": ["x", "y"], "answer": n % 2, "document_id": "d"}
        for n in range(6)
    ]
    assert write_choice_task(tmp_path, rows)
    states = {"i0": FOUND, "i1": NOT_FOUND, "i2": NOT_FOUND, "i3": NOT_FOUND, "i4": COMMON, "i5": UNCOMPARED}
    overlap = known(states | {"elsewhere": FOUND})
    task = judged(tmp_path, CHOICE, FavouriteScorer("x"), TaskOverlap(overlap, own_item))
    acc = next(metric for metric in task.metrics if metric.name == "acc")
    assert acc.value == pytest.approx(3 / 6)
    assert acc.clean == pytest.approx(1 / 3)
    assert task.contamination == Contamination("heldout", items=6, found=1, clean=3, documents=9)
    assert task.contamination.share == pytest.approx(1 / 6)
    assert of_sets({"heldout": overlap}) == (Contamination("heldout", items=7, found=2, clean=3, documents=9),)


def test_figures_that_are_no_means_are_summed_up_as_the_task_does(tmp_path: Path) -> None:
    texts = ["a" * 10, "é" * 20, "abc" * 5]
    rows = [{"id": f"r{n}", "source": "s", "text": text, "document_id": "d"} for n, text in enumerate(texts)]
    assert write_rolling_task(tmp_path, rows)
    overlap = TaskOverlap(known({"r0": NOT_FOUND, "r1": FOUND, "r2": NOT_FOUND}), own_item)
    task = judged(tmp_path, ROLLING, UniformScorer(), overlap)
    values = {metric.name: metric.clean for metric in task.metrics}
    assert values["bits_per_byte"] == pytest.approx(math.log2(BYTES))
    assert values["byte_perplexity"] == pytest.approx(BYTES)


def test_without_a_comparison_or_clean_items_nothing_is_made_up(tmp_path: Path) -> None:
    rows = [{"id": "i", "source": "s", "context": "Q", "choices": ["x", "y"], "answer": 0, "document_id": "d"}]
    assert write_choice_task(tmp_path, rows)
    never = judged(tmp_path, CHOICE, FavouriteScorer("x"), None)
    assert never.contamination is None
    assert all(metric.clean is None for metric in never.metrics)
    all_found = judged(tmp_path, CHOICE, FavouriteScorer("x"), TaskOverlap(known({"i": FOUND}), own_item))
    assert all_found.contamination == Contamination("heldout", items=1, found=1, clean=0, documents=9)
    assert all(metric.clean is None for metric in all_found.metrics)


def task(folder: Path, rows: list[dict[str, Any]], **config: Any) -> Any:
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    told = {
        "task": "quiz",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(folder / "rows.jsonl")}},
        "test_split": "test",
        **config,
    }
    (folder / "quiz.yaml").write_text(yaml.safe_dump(told))
    return TaskFolders([folder]).load("quiz")["tasks"]["quiz"]


def test_what_is_looked_for_is_what_the_model_sees_in_the_order_in_which_it_does(tmp_path: Path) -> None:
    row = {
        "id": "Q-7",
        "hidden": "an explanation",
        "options": ["red", "blue"],
        "question": "Which colour?",
        "passage": "A car.",
    }
    quiz = task(
        tmp_path,
        [row],
        output_type="multiple_choice",
        doc_to_text="{{passage}}\nQuestion: {{question}}\nAnswer:",
        doc_to_choice="options",
        doc_to_target=1,
    )
    assert shown(quiz, row) == ["A car.", "Which colour?", "red", "blue"]
    generated = task(
        tmp_path,
        [row],
        output_type="generate_until",
        doc_to_text="Q: {{question|upper}}",
        doc_to_target="{{hidden}}",
    )
    assert shown(generated, row) == ["Q: WHICH COLOUR?", "an explanation"]


def test_a_group_has_the_items_of_its_tasks(tmp_path: Path) -> None:
    told = {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "text",
        "metric_list": [{"metric": "bits_per_byte", "aggregation": "bits_per_byte", "higher_is_better": False}],
    }
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        task(tmp_path / name, [{"text": f"{name} {n}"} for n in range(3)], **told)
        config = yaml.safe_load((tmp_path / name / "quiz.yaml").read_text()) | {"task": name}
        (tmp_path / name / "quiz.yaml").write_text(yaml.safe_dump(config))
    (tmp_path / "both.yaml").write_text(yaml.safe_dump({"group": "inner", "task": ["one", "two"]}))
    (tmp_path / "outer.yaml").write_text(yaml.safe_dump({"group": "outer", "task": ["inner"]}))
    model = TrainedModel(Framer(ByteCodec(), 64), UniformScorer(), EchoGenerator())
    outcome = TaskFolders([tmp_path]).run(model, "outer", limit=None, bootstrap_iterations=0)
    states = {f"{name}/{n}": NOT_FOUND for name in ("one", "two") for n in range(3)} | {"two/1": FOUND}
    overlap = TaskOverlap(known(states), further_item)
    groups = [
        TaskResult(name, True, 6, 0, (Metric("x", "none", 1.0, None, None, None),)) for name in ("inner", "outer")
    ]
    tasks = [*groups, *task_results(outcome.results)]
    found = {one.name: one for one in with_contamination(tasks, outcome.results, outcome.aggregations, overlap)}
    assert found["one"].contamination == Contamination("heldout", items=3, found=0, clean=3, documents=9)
    assert found["two"].contamination == Contamination("heldout", items=3, found=1, clean=2, documents=9)
    for name in ("inner", "outer"):
        assert found[name].contamination == Contamination("heldout", items=6, found=1, clean=5, documents=9)
        assert found[name].metrics[0].clean is None


def test_documents_of_a_further_task_are_known_by_their_number(tmp_path: Path) -> None:
    task(
        tmp_path,
        [{"text": "aa"}, {"text": "bb"}, {"text": "cc"}],
        output_type="loglikelihood_rolling",
        doc_to_text="",
        doc_to_target="text",
        metric_list=[{"metric": "bits_per_byte", "aggregation": "bits_per_byte", "higher_is_better": False}],
    )
    overlap = TaskOverlap(known({"quiz/0": FOUND, "quiz/1": NOT_FOUND, "quiz/2": FOUND}), further_item)
    found = judged(tmp_path, "quiz", UniformScorer(), overlap, limit=2)
    assert found.contamination == Contamination("heldout", items=2, found=1, clean=1, documents=9)
