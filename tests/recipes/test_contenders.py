"""Tokenizers compete with one model and one budget, on the documents of the main experiment."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from marin.execution import External
from marin.execution.planning.plan import planned_steps
from marin.recipes import Scale, scale_named
from marin.recipes.candidates import Candidate, TokenizerComparison
from marin.recipes.contenders import contenders_of, flops_of, whole_texts
from marin.tokens.tokenizer.config import ImportConfig, KnownTokenizer, TokenizerConfig
from marin.training.budget import run_flops, sequence_flops
from tests.docs.test_pages import load
from tests.pipeline.running import ROOT, environment

HEAVY = "ray torch lm_eval datatrove transformers gcsfs s3fs pyarrow numpy scipy"
IMPORTED = ImportConfig(KnownTokenizer("theirs", External("/data/theirs", version="1")))


@pytest.fixture(scope="module")
def smoke() -> Scale:
    return scale_named("smoke")


def with_candidates(scale: Scale, *candidates: Candidate, seeds: int = 1, flops: float | None = None) -> Scale:
    return replace(scale, comparison=TokenizerComparison(candidates, seeds, flops))


@pytest.mark.parametrize("name", ["smoke", "laptop"])
def test_steps_differ_so_that_flops_agree_within_one_step(name: str) -> None:
    scale = scale_named(name)
    own, half = contenders_of(scale)

    assert half.trainings[0].steps > own.trainings[0].steps == scale.training.steps
    for one in (own, half):
        step = sequence_flops(one.model) * one.trainings[0].batch_sequences
        assert abs(run_flops(one.model, one.trainings[0]) - flops_of(scale)) <= step / 2


def test_models_differ_in_their_vocabulary_alone(smoke: Scale) -> None:
    own, half = contenders_of(smoke)

    assert (own.model.vocab_size, half.model.vocab_size) == (1_024, 512)
    assert replace(half.model, vocab_size=1_024) == own.model == smoke.model
    assert replace(half.trainings[0], steps=smoke.training.steps) == own.trainings[0] == smoke.training


def test_epochs_are_counted_over_the_tokens_of_the_run_that_reads_them(smoke: Scale) -> None:
    for one in contenders_of(smoke):
        assert one.mixture.budget_tokens == one.trainings[0].sequences * one.model.sequence_length


def test_seeds_are_all_different_and_the_first_is_the_one_of_the_scale(smoke: Scale) -> None:
    (own, _) = contenders_of(replace(smoke, comparison=replace(smoke.comparison, seeds=4)))

    seeds = [training.seed for training in own.trainings]
    assert seeds[0] == smoke.training.seed
    assert len(set(seeds)) == 4


def test_a_budget_of_its_own_takes_the_place_of_that_of_the_scale(smoke: Scale) -> None:
    twice = 2.0 * flops_of(smoke)
    (own, _) = contenders_of(replace(smoke, comparison=replace(smoke.comparison, flops=twice)))

    assert own.trainings[0].steps == 2 * smoke.training.steps


def test_an_imported_one_competes_with_the_vocabulary_that_is_said(smoke: Scale) -> None:
    two = with_candidates(smoke, Candidate("own"), Candidate("theirs", IMPORTED, 50_304))
    (_, theirs) = contenders_of(replace(two, comparison=replace(two.comparison, flops=1e13)))

    assert theirs.model.vocab_size == 50_304
    assert theirs.tokenizer == IMPORTED
    assert abs(run_flops(theirs.model, theirs.trainings[0]) / 1e13 - 1) < 0.05
    with pytest.raises(ValueError, match=r"'theirs' would train with .* raise comparison.flops"):
        contenders_of(two)


def test_what_cannot_be_compared_is_refused_by_name(smoke: Scale) -> None:
    with pytest.raises(ValueError, match="at least two"):
        contenders_of(with_candidates(smoke, Candidate("own")))
    with pytest.raises(ValueError, match="name of its own"):
        TokenizerComparison((Candidate("own"), Candidate("own")))
    with pytest.raises(ValueError, match="'theirs' is imported and has no vocab_size"):
        Candidate("theirs", IMPORTED)
    with pytest.raises(ValueError, match=r"no multiple of pad_to_multiple 128; .* is filled up to 50304"):
        Candidate("theirs", IMPORTED, 50_257)
    with pytest.raises(ValueError, match="'mine' is trained and has the vocab_size 512"):
        Candidate("mine", TokenizerConfig(vocab_size=512), 512)
    with pytest.raises(ValueError, match="seeds is 0"):
        TokenizerComparison(seeds=0)


def test_held_out_text_is_measured_whole(smoke: Scale) -> None:
    assert smoke.evaluation.heldout_tokens is not None
    assert whole_texts(smoke.evaluation) == replace(smoke.evaluation, heldout_tokens=None)


def test_documents_and_the_first_model_are_those_of_the_main_experiment(smoke: Scale) -> None:
    main = load(ROOT / "experiments" / "exp_535b.py").build(smoke)
    comparison = load(ROOT / "experiments" / "compare_tokenizers.py").build(
        replace(smoke, comparison=replace(smoke.comparison, seeds=2))
    )
    shared = {step.identity for step in planned_steps([main])[0]}
    steps, _ = planned_steps([comparison])

    for name in ("documents/clean", "evalsets/heldout", "documents/overlap"):
        assert {step.identity for step in steps if step.name == name} <= shared
    models = [step.identity for step in steps if step.name == "model/pretrain"]
    assert len(set(models)) == 4
    assert len(set(models) & shared) == 1


def test_planning_a_comparison_imports_nothing_heavy(tmp_path: Path) -> None:
    program = (
        "import runpy, sys\n"
        f"sys.argv = ['exp', '--scale', 'smoke', '--dry-run', '--prefix', {str(tmp_path / 'none')!r}]\n"
        f"runpy.run_path({str(ROOT / 'experiments' / 'compare_tokenizers.py')!r}, run_name='__main__')\n"
        f"print('heavy', sorted(set({HEAVY!r}.split()) & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=environment()
    )

    assert done.returncode == 0, done.stderr
    assert "evaluations/comparison" in done.stdout
    assert done.stdout.endswith("heavy []\n")
