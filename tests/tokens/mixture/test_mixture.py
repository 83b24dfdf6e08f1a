from __future__ import annotations

import json

import pytest

from marin.execution import StepError, materialise
from marin.tokens.mixture.cells import CellTable
from marin.tokens.mixture.config import MixtureConfig, Phase
from marin.tokens.mixture.steps import build_mixture
from tests.tokens.building import written_shards


def cell(name: str, documents: int, vocab_size: int = 4096):
    return written_shards(tuple((index + 1,) * 10 for index in range(documents)), 50, vocab_size, name)


def test_the_step_reports_asked_and_realised_shares_and_epochs(tmp_path):
    config = MixtureConfig(
        (Phase("main", 0.8), Phase("late", 0.2, weights={"b": 4.0})), budget_tokens=4_000, max_epochs=8
    )
    mixture = materialise(build_mixture({"b": cell("b", 100), "a": cell("a", 300)}, config), prefix=str(tmp_path))
    assert list(mixture.components) == ["a", "b"]
    assert [phase.weights for phase in mixture.phases] == [
        {"a": pytest.approx(3 / 4), "b": pytest.approx(1 / 4)},
        {"a": pytest.approx(3 / 7), "b": pytest.approx(4 / 7)},
    ]
    report = mixture.read_json("report.json")
    for row in report["cells"]:
        assert row["realised"] == pytest.approx(row["asked"], abs=2 / 20_000)
    assert {row["name"]: row["epochs"] for row in report["cells"]}["b"] == pytest.approx(
        4_000 * (0.8 / 4 + 0.2 * 4 / 7) / 1_000
    )
    assert "main" in mixture.read("report.html").decode()
    table = CellTable.from_json(mixture.read("cells.json").decode())
    assert table.available_tokens == {"a": 3_000, "b": 1_000}
    assert table.phase_budgets == (3_200, 800)


def test_normalisation_is_open(tmp_path):
    config = MixtureConfig((Phase("all", 1.0, "shares", {"a": 3.0, "b": 1.0}),))
    mixture = materialise(build_mixture({"a": cell("a", 10), "b": cell("b", 10)}, config), prefix=str(tmp_path))
    assert mixture.phases[0].weights == {"a": 0.75, "b": 0.25}
    assert mixture.read_json("report.json")["notes"] == [
        "the weights of phase 'all' summed to 4 and were scaled to sum to 1"
    ]


def test_cells_of_different_tokenizers_are_refused(tmp_path):
    with pytest.raises(StepError, match="b: made with another tokenizer than a"):
        materialise(build_mixture({"a": cell("a", 10), "b": cell("b", 10, 9000)}), prefix=str(tmp_path))


def test_a_cell_table_of_a_mixture_describes_the_same_mixture(tmp_path):
    cells = {"a": cell("a", 30), "b": cell("b", 50)}
    first = materialise(build_mixture(cells), prefix=str(tmp_path))
    table = CellTable.from_json(first.read("cells.json").decode())
    again = materialise(build_mixture(cells, table.config()), prefix=str(tmp_path))
    assert json.loads(json.dumps([phase.weights for phase in first.phases])) == [
        pytest.approx(phase.weights) for phase in again.phases
    ]
