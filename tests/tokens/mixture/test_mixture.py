from __future__ import annotations

import json

import pytest

from marin.data.documents.io import iterate_documents
from marin.execution import StepError, materialise
from marin.tokens.mixture.cells import CellTable
from marin.tokens.mixture.config import MixtureConfig, Phase
from marin.tokens.mixture.loader import MixtureLoader
from marin.tokens.mixture.steps import build_mixture
from marin.tokens.shards.config import Selection, TokenizeConfig
from marin.tokens.shards.steps import tokenize
from marin.tokens.tokenizer.codec import load_codec
from marin.tokens.tokenizer.steps import train_tokenizer
from tests.tokens.building import SMALL_TOKENIZER, written_shards
from tests.tokens.conftest import CORPUS


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
        assert row["first_seen"] < 1e-4
        assert row["last_seen"] > 1 - 1e-4
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


def test_a_cell_that_only_the_last_phase_uses_is_first_seen_there(tmp_path):
    phases = (
        Phase("main", 0.8, "shares", {"a": 1.0, "b": 0.0}),
        Phase("late", 0.2, "shares", {"a": 0.0, "b": 1.0}),
    )
    cells = {"a": cell("a", 10), "b": cell("b", 10)}
    mixture = materialise(build_mixture(cells, MixtureConfig(phases)), prefix=str(tmp_path))
    seen = {row["name"]: (row["first_seen"], row["last_seen"]) for row in mixture.read_json("report.json")["cells"]}
    assert seen == {"a": (0.0, pytest.approx(0.8, abs=2e-5)), "b": (0.8, pytest.approx(1.0, abs=2e-5))}


def test_a_cell_of_weight_zero_is_there_to_be_measured_on_and_never_drawn(tmp_path):
    phases = (
        Phase("main", 0.8, "shares", {"a": 1.0, "held": 0.0, "b": 0.0}),
        Phase("late", 0.2, "shares", {"a": 0.5, "held": 0.0, "b": 0.5}, ramp=0.1),
    )
    cells = {name: cell(name, 10) for name in ("a", "held", "b")}
    mixture = materialise(build_mixture(cells, MixtureConfig(phases)), prefix=str(tmp_path))
    assert mixture.validation == ("held",)
    report = mixture.read_json("report.json")
    rows = {row["name"]: row for row in report["cells"]}
    assert {name: row["role"] for name, row in rows.items()} == {"a": "training", "b": "training", "held": "validation"}
    assert rows["held"]["first_seen"] is None and rows["held"]["epochs"] == 0
    assert rows["b"]["first_seen"] == pytest.approx(0.8, abs=0.01)
    assert rows["b"]["course"][75:100:8] == pytest.approx([0.0, 0.1625, 0.5, 0.5], abs=0.07)
    assert report["largest_window_error"] < 2
    assert mixture.read("shares.svg").startswith(b"<svg")
    loader = MixtureLoader(mixture, 16, seed=0, total_sequences=200)
    assert "held" not in {loader.names[index] for index in loader.batch(0, 200).components}
    batches = list(loader.validation_batches("held", 4))
    assert sum(int((batch.tokens > 0).sum()) for batch in batches) == cells_tokens(mixture, "held")
    with pytest.raises(ValueError, match="'a' is drawn by the run; validation cells are held"):
        loader.validation_batches("a", 4)


def cells_tokens(mixture, name: str) -> int:
    return mixture.components[name].tokens


def test_a_short_run_of_a_simulated_budget_repeats_its_cells_as_the_full_one(tmp_path):
    config = MixtureConfig(budget_tokens=40_000, simulate_budget=True)
    cells = {"a": cell("a", 300), "b": cell("b", 700)}
    mixture = materialise(build_mixture(cells, config), prefix=str(tmp_path))
    full, short = (MixtureLoader(mixture, 10, seed=0, total_sequences=total) for total in (4_000, 400))
    assert full.epochs() == pytest.approx({"a": 4, "b": 4}, rel=0.01)
    assert short.epochs() == pytest.approx({"a": 4, "b": 4}, rel=0.05)
    assert len(set(short.batch(0, 400).tokens[:, 0].tolist())) <= 101
    assert short.report()["simulated_fraction"] == pytest.approx(0.1)


def test_a_place_of_the_run_leads_back_to_its_documents(tokens_prefix, corpus):
    handle = tokenize(CORPUS, train_tokenizer(CORPUS, SMALL_TOKENIZER), Selection(), TokenizeConfig(shard_bytes=10_000))
    mixture = materialise(build_mixture({"all": handle}), prefix=str(tokens_prefix))
    tokenizer = materialise(train_tokenizer(CORPUS, SMALL_TOKENIZER), prefix=str(tokens_prefix))
    codec = load_codec(tokenizer)
    texts = {document.id: document.text for document in iterate_documents(corpus)}
    loader = MixtureLoader(mixture, 64, seed=0, total_sequences=50)
    for place in range(50):
        batch = loader.batch(place, 1)
        documents = loader.documents(place)
        assert len(documents) == len(set(batch.segments[0].tolist())) - int((batch.tokens == mixture.pad_id).any())
        for segment, document in enumerate(documents):
            ids = batch.tokens[0][batch.segments[0] == segment].tolist()
            assert codec.decode_bytes(ids, skip_special=True) in texts[document].encode()
