"""Tokenizers are compared on the same text at the same FLOPs, and a difference is no more sure than its seeds."""

from __future__ import annotations

import io
import json
import math
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from marin.checkpoint.artifacts import Checkpoint
from marin.evaluation.artifacts import EvalReport, RequestCounts, SourceScore
from marin.evaluation.comparison import COMPARISON, Comparison, ComparisonConfig, compare, text_bytes_per_token
from marin.evaluation.comparison_page import page
from marin.evaluation.comparison_tables import render
from marin.evaluation.framing import Framing
from marin.evaluation.steps import compare_tokenizers
from marin.execution import StepError, materialise, step
from marin.model.accounting import flops_per_token, total_parameters
from marin.model.config import ModelConfig
from marin.tokens.mixture.artifacts import Mixture, MixturePhase
from marin.tokens.shards.artifacts import TokenShards
from marin.tokens.shards.config import PackingConfig, Selection
from marin.tokens.tokenizer.artifacts import Tokenizer

BYTES = {"docs": 30_000, "web": 10_000}
STEPS = {"small": 40, "large": 30}
VOCABULARY = {"small": 512, "large": 1_024}


def model_config(vocabulary: int) -> ModelConfig:
    return ModelConfig.shaped(
        width=64, layers=2, vocab_size=vocabulary, head_dim=16, experts=8, experts_per_token=2, sequence_length=128
    )


def report(docs: float, web: float, bytes_per_token: float) -> EvalReport:
    scores = {"docs": docs, "web": web}
    return EvalReport(
        step=1,
        tokens=1,
        validation_loss=None,
        unigram_loss=None,
        bits_per_byte=None,
        sources=tuple(
            SourceScore(name, bits, 1.0, round(BYTES[name] / bytes_per_token), BYTES[name], True)
            for name, bits in scores.items()
        ),
        tasks=(),
        continuations=(),
        framing=Framing(0, 1),
        max_length=128,
        requests=RequestCounts(0, 0, 0, 0, 0, 0, 0, 0),
        samples=(),
    )


def checkpoint(name: str, tokens: int = 60_000) -> Checkpoint:
    return Checkpoint(
        model=model_config(VOCABULARY[name]),
        step=STEPS[name],
        tokens=tokens,
        skipped_steps=0,
        training_loss=1.0,
        validation_loss=1.0,
        unigram_loss=1.0,
        validation_losses={},
        unigram_losses={},
        validation_tokens={},
    )


def tokenizer(name: str) -> Tokenizer:
    size = VOCABULARY[name]
    return Tokenizer(
        vocab_size=size,
        real_vocab_size=size - 3,
        asked_vocab_size=size,
        bos_id=0,
        eos_id=1,
        pad_id=2,
        add_bos=True,
        add_eos=True,
        trained_bytes=1,
        sha256="",
    )


def shards(tokens: int, text_bytes: int) -> TokenShards:
    return TokenShards(
        selection=Selection("train"),
        shards=(),
        tokens=tokens,
        documents=1,
        text_bytes=text_bytes,
        dtype="uint16",
        vocab_size=512,
        bos_id=0,
        eos_id=1,
        pad_id=2,
        tokenizer_sha256="",
        packing=PackingConfig(),
        order_by="stored",
    )


def mixture(*phases: MixturePhase) -> Mixture:
    return Mixture(
        components={"a": shards(100, 300), "b": shards(100, 200)},
        phases=phases or (MixturePhase("all", 1.0, 0.0, {"a": 0.5, "b": 0.5}),),
        tokens=200,
        vocab_size=512,
        pad_id=2,
        max_epochs=None,
        budget_tokens=None,
        exhausted="repeat",
        tail="pad",
        simulate_budget=False,
        difficulty_bands=1,
        repeat_mask=None,
    )


def flops(name: str, steps: int) -> int:
    return steps * 16 * 128 * flops_per_token(model_config(VOCABULARY[name]))


def compared(small: list[EvalReport], large: list[EvalReport], budget: float | None = None) -> Comparison:
    """`large` is the baseline; the budget is what it took."""
    steps = round(flops("large", 30) / flops("small", 1))
    config = ComparisonConfig(
        "large", flops("large", 30) if budget is None else budget, {"large": 30 * 16, "small": steps * 16}
    )
    return compare(
        {"small": small, "large": large},
        {name: [checkpoint(name)] * len(small) for name in STEPS},
        {name: tokenizer(name) for name in STEPS},
        {name: mixture() for name in STEPS},
        config,
    )


def shown(comparison: Comparison) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(render(comparison, {"page": "file:///somewhere"}))
    return console.export_text()


def test_the_row_over_all_sources_weighs_them_by_their_bytes() -> None:
    result = compared([report(2.0, 3.0, 2.0)], [report(2.2, 2.8, 2.5)])
    docs, web, everything = result.sources

    assert [row.source for row in result.sources] == ["docs", "web", "all"]
    assert [score.name for score in everything.scores] == ["large", "small"]
    assert everything.scores[1].mean == pytest.approx((2.0 * 30_000 + 3.0 * 10_000) / 40_000)
    assert (docs.scores[1].difference, web.scores[1].difference) == pytest.approx((-0.2, 0.2))
    assert everything.scores[1].difference == pytest.approx(-0.1)
    assert docs.scores[1].bytes_per_token == pytest.approx(2.0)


def test_one_seed_has_a_verdict_without_an_error_bar_and_says_so() -> None:
    result = compared([report(2.0, 3.0, 2.0)], [report(2.2, 2.8, 2.5)])

    (verdict,) = result.verdicts
    assert verdict.startswith("small is better than large: 2.2500 against 2.3500 bits per byte, 0.1000 fewer (4.26%)")
    assert "One seed gives no error bar" in verdict
    assert all(score.deviation is None and score.difference_error is None for score in result.sources[-1].scores)


def test_several_seeds_give_a_mean_a_spread_and_the_error_of_the_difference() -> None:
    small, large = (2.00, 2.02, 2.04), (2.20, 2.30, 2.22)
    result = compared([report(x, x, 2.0) for x in small], [report(x, x, 2.5) for x in large])

    baseline, score = result.sources[-1].scores
    assert score.values == pytest.approx(small)
    assert score.mean == pytest.approx(2.02)
    assert score.deviation == pytest.approx(0.02)
    error = math.sqrt(statistics.variance(small) / 3 + statistics.variance(large) / 3)
    assert score.difference_error == pytest.approx(error)
    assert baseline.difference == 0
    assert "(standard error over 3 seeds)" in result.verdicts[0]


@pytest.mark.parametrize("seeds", [2, 3, 6])
def test_a_difference_that_seeds_could_give_by_chance_is_undecided(seeds: int) -> None:
    from scipy.stats import t

    values = [2.0 + 0.01 * seed for seed in range(seeds)]
    doubt = math.sqrt(2 * statistics.variance(values) / seeds) * t.ppf(0.975, 2 * (seeds - 1))
    for gap, undecided in ((0.99 * doubt, True), (1.01 * doubt, False)):
        result = compared([report(x, x, 2.0) for x in values], [report(x + gap, x + gap, 2.5) for x in values])
        assert ("undecided" in result.verdicts[0]) == undecided


def test_parameters_are_split_in_those_of_the_vocabulary_and_the_rest() -> None:
    large, small = compared([report(2.0, 3.0, 2.0)], [report(2.2, 2.8, 2.5)]).contests

    assert large.embedding_parameters == 2 * 1_024 * 64
    assert large.other_parameters == small.other_parameters
    assert large.embedding_parameters + large.other_parameters == total_parameters(model_config(1_024))
    assert abs(large.flops - small.flops) <= flops("small", 1)


def test_bytes_seen_follow_the_cells_and_a_ramp_counts_half() -> None:
    ramped = mixture(
        MixturePhase("main", 0.6, 0.0, {"a": 1.0, "b": 0.0}), MixturePhase("end", 0.4, 0.2, {"a": 0.0, "b": 1.0})
    )

    assert text_bytes_per_token(mixture()) == pytest.approx(2.5)
    assert text_bytes_per_token(ramped) == pytest.approx(0.7 * 3 + 0.3 * 2)


def test_flops_that_differ_by_more_than_a_step_are_refused_with_the_vocabulary_that_came_out() -> None:
    with pytest.raises(StepError, match=r"'large' took .* vocabulary came out as 1024 entries"):
        compared([report(2.0, 3.0, 2.0)], [report(2.2, 2.8, 2.5)], budget=flops("large", 32))


def test_a_part_of_the_text_is_refused_and_so_is_another_text() -> None:
    whole = report(2.0, 3.0, 2.0)
    part = replace(whole, sources=(replace(whole.sources[0], complete=False), whole.sources[1]))
    other = replace(whole, sources=(replace(whole.sources[0], bytes=29_999), whole.sources[1]))

    with pytest.raises(StepError, match=r"first part of 'docs'.*heldout_tokens"):
        compared([part], [whole])
    with pytest.raises(StepError, match="29999"):
        compared([other], [whole])
    with pytest.raises(StepError, match="no source"):
        compared([replace(whole, sources=())], [replace(whole, sources=())])


def test_console_and_page_show_the_figures_and_the_verdict() -> None:
    result = compared([report(2.0, 3.0, 2.0)], [report(2.2, 2.8, 2.5)])

    for text in (shown(result), page(result)):
        for figure in ("2.2000", "-0.2000 (-9.09%)", "-0.1000 (-4.26%)", "131,072", "65,536", "2.500", "150,000"):
            assert figure in text
        assert "small is better than large" in " ".join(text.split())


@step("tests/eval_report", version="1", inline=True)
def given_report(docs: float, web: float, bytes_per_token: float) -> EvalReport:
    """A report of given figures."""
    return report(docs, web, bytes_per_token)


@step("tests/eval_model", version="1", inline=True)
def given_model(name: str) -> Checkpoint:
    """A checkpoint without weights."""
    return checkpoint(name)


@step("tests/eval_tokenizer", version="1", inline=True)
def given_tokenizer(name: str) -> Tokenizer:
    """A tokenizer without its file."""
    return tokenizer(name)


@step("tests/eval_shards", version="1", inline=True)
def given_shards(tokens: int, text_bytes: int) -> TokenShards:
    """Token shards without their files."""
    return shards(tokens, text_bytes)


@step("tests/eval_mixture", version="1", inline=True)
def given_mixture(a: TokenShards, b: TokenShards) -> Mixture:
    """A mixture without its files."""
    return replace(mixture(), components={"a": a, "b": b})


def test_the_step_writes_its_figures_and_its_page(tmp_path: Path) -> None:
    steps = round(flops("large", 30) / flops("small", 1))
    done = materialise(
        compare_tokenizers(
            {"large": (given_report(2.2, 2.8, 2.5),), "small": (given_report(2.0, 3.0, 2.0),)},
            {name: (given_model(name),) for name in STEPS},
            {name: given_tokenizer(name) for name in STEPS},
            {name: given_mixture(given_shards(100, 300), given_shards(100, 200)) for name in STEPS},
            ComparisonConfig("large", flops("large", 30), {"large": 480, "small": steps * 16}),
        ),
        prefix=str(tmp_path),
    )

    with done.open(COMPARISON) as file:
        figures = json.load(file)
    assert figures["verdicts"] == list(done.verdicts)
    assert figures["sources"][-1]["scores"][1]["difference"] == pytest.approx(-0.1)
    assert [one["name"] for one in figures["contests"]] == ["large", "small"]
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(done.present({}))
    assert "comparison.html" in console.export_text()
