"""What a run is measured on, against the evaluation of its checkpoint and against sums by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from marin.checkpoint.loading import load_model
from marin.evaluation.heldout import score_source
from marin.execution import Fleet, StepError, materialise
from marin.optim.config import OptimizerConfig
from marin.tokens.mixture.artifacts import Mixture
from marin.tokens.mixture.config import MixtureConfig, Phase
from marin.tokens.mixture.loader import MixtureLoader, packed_batches
from marin.tokens.mixture.steps import build_mixture
from marin.tokens.shards.artifacts import TokenShards
from marin.training.config import TrainingConfig, ValidationGrid
from marin.training.job import TrainingOutcome
from marin.training.outputs import publish
from marin.training.steps import pretrain
from marin.training.tensors import on_device
from marin.training.validation import SourceLoss, summarise
from tests.tokens.building import written_shards
from tests.training.test_pretrain import counting, fixed_tokenizer
from tests.training.toy import VOCABULARY, toy_model

SHORT = TrainingConfig(
    steps=2, batch_sequences=4, optimizer=OptimizerConfig(1e-3), validation=ValidationGrid(sequences=100)
)


def mixture_of() -> Mixture:
    """Two cells, of which one is only validated on."""
    cells = {name: written_shards(counting(seed, 20), 40, VOCABULARY, name) for seed, name in enumerate(("a", "rare"))}
    return build_mixture(cells, MixtureConfig(phases=(Phase("all", weights={"a": 1.0, "rare": 0.0}),)))


def heldout_of() -> dict[str, TokenShards]:
    """A source with text, and one of whose documents no token has a loss: each is a single token."""
    single = tuple((1,) for _ in range(30))
    return {
        "x": written_shards(counting(7, 9), 40, VOCABULARY, "x"),
        "masked": written_shards(single, 40, VOCABULARY, "masked"),
    }


def test_every_source_has_its_loss_and_the_bits_per_byte_of_an_evaluation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    prefix = str(tmp_path)
    trained = pretrain(mixture_of(), heldout_of(), fixed_tokenizer(VOCABULARY), toy_model(), SHORT).on(Fleet())
    checkpoint = materialise(trained, prefix=prefix)
    model = load_model(checkpoint)
    heldout = {name: materialise(shards, prefix=prefix) for name, shards in heldout_of().items()}
    mixture = materialise(mixture_of(), prefix=prefix)
    (*_, final) = checkpoint.read_json("validation.json")["validations"]
    sources = {"x": heldout["x"], "mixture/rare": mixture.components["rare"]}
    length = checkpoint.model.sequence_length
    for name, shards in sources.items():
        score = score_source(
            name,
            model,
            packed_batches(shards, length, 3),
            total_tokens=shards.tokens,
            total_bytes=shards.text_bytes,
            byte_lengths=np.ones(VOCABULARY, dtype=np.int64),
            bos_id=shards.bos_id,
        )
        assert score.complete
        assert final["source_bits_per_byte"][name] == pytest.approx(score.bits_per_byte, rel=1e-6)
    assert final["source_tokens"]["masked"] == 0
    assert set(final["losses"]) == {"x", "mixture/rare"}
    assert final["loss"] == pytest.approx(final["losses"]["x"], rel=1e-12)
    assert final["bits_per_byte"] == final["source_bits_per_byte"]["x"]
    assert checkpoint.validation_loss == final["loss"]
    assert checkpoint.unigram_loss == checkpoint.unigram_losses["x"]

    loader = MixtureLoader(mixture, length, 0, 4)
    nll = [model(*on_device(batch, torch.device("cpu"))).nll_sum for batch in loader.validation_batches("rare", 5)]
    assert float(sum(nll)) / final["source_tokens"]["mixture/rare"] == pytest.approx(final["losses"]["mixture/rare"])


def test_a_part_of_a_source_counts_the_bytes_in_proportion_to_its_tokens(tmp_path: Path) -> None:
    few = replace(SHORT, validation=ValidationGrid(sequences=2))
    heldout = {"x": heldout_of()["x"]}
    trained = pretrain(mixture_of(), heldout, fixed_tokenizer(VOCABULARY), toy_model(), few)
    (*_, final) = materialise(trained, prefix=str(tmp_path)).read_json("validation.json")["validations"]
    shards = materialise(heldout["x"], prefix=str(tmp_path))
    covered = 2 * toy_model().sequence_length + 1
    unscored = covered - final["source_tokens"]["x"]
    nats = final["losses"]["x"] * final["source_tokens"]["x"] + unscored * math.log(VOCABULARY)
    size = round(shards.text_bytes * covered / shards.tokens)
    assert shards.bos_id is None
    assert final["source_bits_per_byte"]["x"] == pytest.approx(nats / math.log(2) / size, rel=1e-9)


def test_a_run_whose_only_held_out_text_has_no_loss_ends_well_and_names_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    masked = {"masked": heldout_of()["masked"]}
    trained = pretrain(mixture_of(), masked, fixed_tokenizer(VOCABULARY), toy_model(), replace(SHORT, steps=1))
    checkpoint = materialise(trained, prefix=str(tmp_path))
    assert math.isnan(checkpoint.validation_loss)
    assert math.isnan(checkpoint.unigram_loss)
    assert checkpoint.validation_losses.keys() == {"mixture/rare"}


def test_a_run_whose_last_validation_is_not_finite_is_refused_in_one_line() -> None:
    broken = {"x": SourceLoss(nll=math.nan, tokens=5, target_counts=np.zeros(VOCABULARY, dtype=np.int64))}
    summary = summarise(broken, step=8, started=0.0)
    assert summary["loss"] is None and summary["losses"] == {"x": None} and summary["tokens"] == 5
    outcome = TrainingOutcome(
        first_step=0,
        step=8,
        tokens=100,
        skipped_steps=3,
        checkpoint=(),
        permanent=(),
        metrics=(),
        validations=(summary,),
        unigram_losses={},
        peak_flops=1.0,
        flops_per_token=1,
    )
    with pytest.raises(StepError, match=r"the validation loss after step 8 is not finite, .*3 steps were skipped"):
        publish(None, None, outcome)  # type: ignore[arg-type]  # neither is looked at
