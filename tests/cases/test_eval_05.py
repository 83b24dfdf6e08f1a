"""One or two samples, all right or all wrong, in groups: always standard JSON, null for what is unknown."""

from __future__ import annotations

import json

import pytest
import yaml

from marin.evaluation.adapter import TrainedModel
from marin.evaluation.framing import Framer
from marin.evaluation.harness import TaskFolders
from marin.evaluation.results import document_records, strict_json_lines, task_results
from tests.evaluation.doubles import ByteCodec, EchoGenerator, FavouriteScorer


def refuse(constant):
    raise ValueError(f"{constant} is not JSON")


@pytest.fixture(scope="module")
def grouped(tmp_path_factory):
    """A group of two tasks with four items each; the right answer holds the most x."""
    folder = tmp_path_factory.mktemp("tasks")
    for name in ("first", "second"):
        rows = [{"context": f"{name} {i}", "choices": [" xx", " y"], "answer": 0} for i in range(4)]
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
        task = {
            "task": name,
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(folder / f"{name}.jsonl")}},
            "test_split": "test",
            "output_type": "multiple_choice",
            "doc_to_text": "context",
            "doc_to_choice": "choices",
            "doc_to_target": "answer",
            "target_delimiter": "",
            "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
        }
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(task))
    group = {
        "group": "both",
        "task": ["first", "second"],
        "aggregate_metric_list": [{"metric": "acc", "aggregation": "mean", "weight_by_size": True}],
    }
    (folder / "both.yaml").write_text(yaml.safe_dump(group))
    return TaskFolders([folder])


@pytest.mark.parametrize("limit", [1, 2])
@pytest.mark.parametrize(("favourite", "accuracy"), [("x", 1.0), ("y", 0.0)])
@pytest.mark.parametrize("iterations", [0, 10])
def test_tiny_groups_are_written_as_standard_json(grouped, limit, favourite, accuracy, iterations):
    model = TrainedModel(Framer(ByteCodec(), 64), FavouriteScorer(favourite), EchoGenerator())
    results = grouped.run(model, "both", limit=limit, bootstrap_iterations=iterations).results
    rows = task_results(results)
    text = strict_json_lines([{"row": row} for row in rows] + list(document_records(results))).decode()
    lines = [json.loads(line, parse_constant=refuse) for line in text.splitlines()]
    told = [line["row"] for line in lines if "row" in line]
    assert [(row["name"], row["group"], row["samples"]) for row in told] == [
        ("both", True, 2 * limit),
        ("first", False, limit),
        ("second", False, limit),
    ]
    error = None if limit == 1 or iterations == 0 else 0.0
    for row in told:
        (metric,) = row["metrics"]
        assert metric["value"] == accuracy
        assert metric["stderr"] == error
    assert sum("row" not in line for line in lines) == 2 * limit
