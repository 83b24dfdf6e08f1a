from __future__ import annotations

import json
from dataclasses import replace

import pytest

from marin.tokens.mixture.cells import CellTable
from marin.tokens.mixture.config import InfeasibleMixture, MixtureConfig, Phase, RepeatMask
from marin.tokens.mixture.weights import epochs_over, resolve_weights

TWO_PHASES = (
    Phase("main", 0.8, "shares", {"a": 0.7, "b": 0.3}),
    Phase("cooldown", 0.2, "shares", {"a": 0.2, "b": 0.8}),
)

PUBLIC = {
    "tokenizer": "some tokenizer",
    "available_tokens": {"c00q0": 900, "c00q1": 9_000, "c01q0": 9_500, "c01q1": 10_000},
    "phase_budgets": [15_000, 3_750],
    "phase0_weights": {"c00q0": 0.05, "c00q1": 0.45, "c01q0": 0.1, "c01q1": 0.4},
    "phase1_weights": {"c00q0": 0.02, "c00q1": 0.58, "c01q0": 0.05, "c01q1": 0.35},
}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"phases": ()}, "phases is empty"),
        ({"phases": (Phase("x", 0.5), Phase("x", 0.5))}, "two phases called 'x'"),
        ({"phases": (Phase("x", 0.5), Phase("y", 0.4))}, "sum to 0.9, not 1 .x 0.5, y 0.4."),
        ({"max_epochs": 2.0}, "max_epochs needs mixture.budget_tokens"),
        ({"max_epochs": 0.0, "budget_tokens": 5}, "max_epochs is 0.0"),
        ({"budget_tokens": 0}, "budget_tokens is 0"),
        ({"exhausted": "wrap"}, "exhausted is 'wrap'"),
        ({"tail": "cut"}, "tail is 'cut'"),
        ({"simulate_budget": True}, "simulate_budget needs mixture.budget_tokens"),
        ({"difficulty_bands": 0}, "difficulty_bands is 0; give 1"),
        ({"phases": (Phase("x", 0.5, ramp=0.1), Phase("y", 0.5))}, "'x': ramp is 0.1; the first phase has none"),
        ({"phases": (Phase("x", 1.0, "shares", {"a": 0.5, "b": 0.4}),), "normalise": False}, "'x' sum to 0.9"),
        (
            {"phases": (TWO_PHASES[0], Phase("y", 0.2, "shares", {"a": 1.0}))},
            "'b' has a weight in phase 'main' and none",
        ),
    ],
)
def test_a_bad_mixture_is_refused_when_it_is_read(arguments: dict, text: str):
    with pytest.raises(ValueError, match=text):
        MixtureConfig(**arguments)


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1, float("nan")])
def test_a_phase_is_a_share_of_the_run(share: float):
    with pytest.raises(ValueError, match="phase 'x': share is"):
        Phase("x", share)


@pytest.mark.parametrize("ramp", [-0.1, 0.6, float("nan")])
def test_a_ramp_lies_within_its_phase(ramp: float):
    with pytest.raises(ValueError, match=r"phase 'x': ramp is .* to the phase's own share of 0.5"):
        Phase("x", 0.5, ramp=ramp)


@pytest.mark.parametrize(("arguments", "text"), [((0, 8), "longest_period is 0"), ((5, 1), "repeats is 1")])
def test_an_impossible_repeat_mask_is_refused(arguments: tuple[int, int], text: str):
    with pytest.raises(ValueError, match=text):
        RepeatMask(*arguments)


def test_a_ramp_counts_half_for_each_of_its_sides():
    config = MixtureConfig((Phase("main", 0.5), Phase("late", 0.5, weights={"b": 3.0}, ramp=0.2)))
    assert config.effective_shares() == (pytest.approx(0.6), pytest.approx(0.4))
    tokens = {"a": 300, "b": 100}
    resolved = resolve_weights(config, tokens)
    assert epochs_over(config, resolved.phases, tokens)["b"] == pytest.approx(400 * (0.6 * 0.25 + 0.4 * 0.5) / 100)


def test_the_cap_counts_ramps():
    phases = (Phase("main", 0.5, weights={"small": 0.0}), Phase("late", 0.5, weights={"small": 100.0}, ramp=0.5))
    tokens = {"small": 100, "big": 8_000}
    resolved = resolve_weights(MixtureConfig(phases, budget_tokens=10_000, max_epochs=4), tokens)
    assert resolved.phases[1]["small"] == pytest.approx(4 * 100 / 10_000 / 0.25)


def test_factors_on_token_counts_become_shares():
    config = MixtureConfig((Phase("main", 0.5), Phase("late", 0.5, weights={"b": 3.0})))
    resolved = resolve_weights(config, {"a": 300, "b": 100})
    assert resolved.phases == ({"a": 0.75, "b": 0.25}, {"a": 0.5, "b": 0.5})
    assert resolved.notes == ()
    assert epochs_over(config, resolved.phases, {"a": 300, "b": 100}) == {
        "a": 400 * 0.625 / 300,
        "b": 400 * 0.375 / 100,
    }


def test_the_cap_lowers_what_is_seen_too_often_and_raises_the_rest_in_proportion():
    phases = (Phase("main", 0.75), Phase("late", 0.25, weights={"small": 100.0}))
    tokens = {"small": 100, "big": 8_000, "other": 2_000}
    config = MixtureConfig(phases, budget_tokens=10_000, max_epochs=4)
    resolved = resolve_weights(config, tokens)
    assert resolved.capped == ("small",)
    assert "cap of 4 epochs lowered the weight of small" in resolved.notes[0]
    epochs = epochs_over(config, resolved.phases, tokens)
    assert epochs["small"] == pytest.approx(4)
    for weights in resolved.phases:
        assert sum(weights.values()) == pytest.approx(1, abs=1e-12)
        assert weights["big"] / weights["other"] == pytest.approx(4)


def test_a_cap_that_raises_another_cell_over_it_is_kept_too():
    tokens = {"a": 10, "b": 100, "c": 10_000}
    config = MixtureConfig(
        (Phase("all", weights={"a": 1_000.0, "b": 10.0, "c": 0.05}),), budget_tokens=1_000, max_epochs=2
    )
    resolved = resolve_weights(config, tokens)
    epochs = epochs_over(config, resolved.phases, tokens)
    assert max(epochs.values()) <= 2 + 1e-6
    assert resolved.capped == ("a", "b")


def test_a_cell_that_one_phase_needs_alone_is_lowered_in_the_others_only():
    phases = (Phase("one", 0.5, weights={"y": 0}), Phase("both", 0.5))
    config = MixtureConfig(phases=phases, budget_tokens=100, max_epochs=1)
    found = resolve_weights(config, {"x": 60, "y": 60})
    assert found.phases[0] == {"x": 1, "y": 0}
    assert found.phases[1] == pytest.approx({"x": 0.2, "y": 0.8})
    with pytest.raises(InfeasibleMixture, match=r"'one' need 50 tokens .* can give 48 at 0.8 epochs \(x\)"):
        resolve_weights(replace(config, max_epochs=0.8), {"x": 60, "y": 60})


def test_a_budget_that_the_cells_cannot_fill_is_refused():
    config = MixtureConfig(budget_tokens=1_000, max_epochs=2)
    with pytest.raises(InfeasibleMixture, match=r"need 1,000 tokens .* can give 600 at 2 epochs"):
        resolve_weights(config, {"a": 100, "b": 200})
    assert resolve_weights(config, {"a": 200, "b": 300}).phases[0] == {"a": 0.4, "b": 0.6}


def test_listed_shares_above_the_cap_are_refused_by_cell():
    config = MixtureConfig(TWO_PHASES, budget_tokens=1_000, max_epochs=2)
    with pytest.raises(InfeasibleMixture, match=r"cap of 2 epochs over 1,000 tokens: b 4.00 epochs \(at most 0.2 of"):
        resolve_weights(config, {"a": 1_000, "b": 100})


def test_the_public_cell_table_is_read_and_written_unchanged():
    table = CellTable.from_json(json.dumps(PUBLIC))
    assert json.loads(table.to_json()) == PUBLIC
    config = table.config(max_epochs=8)
    assert [phase.share for phase in config.phases] == [0.8, pytest.approx(0.2)]
    resolved = resolve_weights(config, table.available_tokens)
    for index, weights in enumerate(resolved.phases):
        assert weights == pytest.approx(PUBLIC[f"phase{index}_weights"])
    epochs = epochs_over(config, resolved.phases, table.available_tokens)
    assert epochs["c00q0"] == pytest.approx((0.05 * 15_000 + 0.02 * 3_750) / 900)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"phase1_weights": None}, "phase1_weights is None; give a number for each cell"),
        ({"phase1_weights": {"c00q0": 1.0}}, "has a weight in phase"),
        ({"phase0_weights": {"zz": 1.0}, "phase1_weights": {"zz": 1.0}}, "no such cell 'zz'"),
        ({"phase_budgets": [15_000]}, "no key 'phase1_weights'"),
        ({"phase_budgets": [1, 2, 3]}, "needs the key 'phase2_weights'"),
        ({"available_tokens": PUBLIC["available_tokens"] | {"c00q0": 0}}, r"available_tokens\['c00q0'\] is 0"),
    ],
)
def test_a_broken_cell_table_is_refused(change: dict, text: str):
    with pytest.raises(ValueError, match=text):
        CellTable.from_json(json.dumps(PUBLIC | change))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"phase_budgets": "12"}, "phase_budgets is '12'; give a list"),
        ({"phase_budgets": [float("inf")]}, "phase_budgets is inf; give a finite number"),
        ({"tokenizer": None}, "tokenizer is None"),
        ({"available_tokens": [1]}, r"available_tokens is \[1\]; give a number for each cell"),
        ({"available_tokens": {**PUBLIC["available_tokens"], "c00q0": 1.9}}, "'c00q0'.* is 1.9; tokens are whole"),
        ({"phase0_weights": {**PUBLIC["phase0_weights"], "c00q0": True}}, "phase0_weights.*is True; give a finite"),
        ({"phase0_weights": {**PUBLIC["phase0_weights"], "c00q0": "0.05"}}, "is '0.05'; give a finite number"),
    ],
)
def test_a_table_of_cells_with_a_wrong_kind_of_value_names_it(change: dict[str, object], told: str):
    with pytest.raises(ValueError, match=told):
        CellTable.from_json(json.dumps({**PUBLIC, **change}))


def test_a_table_of_cells_is_one_json_object_with_each_key_once():
    with pytest.raises(ValueError, match="holds a list"):
        CellTable.from_json("[]")
    with pytest.raises(ValueError, match="'tokenizer' twice"):
        CellTable.from_json(json.dumps(PUBLIC)[:-1] + ', "tokenizer": "other"}')
