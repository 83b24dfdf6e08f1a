"""The pretraining step from token shards to a published checkpoint, ranks as processes of their own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from marin.checkpoint.artifacts import Checkpoint
from marin.checkpoint.config import CheckpointPolicy
from marin.checkpoint.errors import CheckpointError
from marin.checkpoint.loading import load_model
from marin.execution import Fleet, StepError, materialise, step
from marin.optim.config import OptimizerConfig
from marin.parallel.config import ParallelPlan
from marin.tokens.mixture.artifacts import Mixture
from marin.tokens.mixture.config import MixtureConfig
from marin.tokens.mixture.loader import Batch, MixtureLoader, packed_batches
from marin.tokens.mixture.steps import build_mixture
from marin.tokens.shards.artifacts import TokenShards
from marin.tokens.tokenizer.artifacts import Tokenizer
from marin.training.config import TrainingConfig, ValidationGrid
from marin.training.steps import pretrain
from marin.training.tensors import on_device
from tests.tokens.building import written_shards
from tests.training.toy import VOCABULARY, toy_model


@step("tests/tokenizer", version="1", inline=True)
def fixed_tokenizer(vocab_size: int) -> Tokenizer:
    """A tokenizer of which only the size is used."""
    return Tokenizer(
        vocab_size=vocab_size,
        real_vocab_size=vocab_size,
        asked_vocab_size=vocab_size,
        bos_id=None,
        eos_id=1,
        pad_id=0,
        add_bos=False,
        add_eos=True,
        trained_bytes=0,
        sha256="0" * 64,
    )


def counting(seed: int, documents: int) -> tuple[tuple[int, ...], ...]:
    """Documents that count upwards and end with id 1."""
    random = np.random.default_rng(seed)
    made = []
    for _ in range(documents):
        start, length = int(random.integers(2, VOCABULARY)), int(random.integers(4, 30))
        made.append((*(2 + (start + place) % (VOCABULARY - 2) for place in range(length)), 1))
    return tuple(made)


def mixture_of() -> Mixture:
    cells = {name: written_shards(counting(seed, 60), 40, VOCABULARY, name) for seed, name in enumerate(("a", "b"))}
    return build_mixture(cells, MixtureConfig())


def heldout_of() -> dict[str, TokenShards]:
    return {name: written_shards(counting(seed, 9), 40, VOCABULARY, name) for seed, name in ((7, "x"), (8, "y"))}


def graph(training: TrainingConfig, workers: int, vocabulary: int = VOCABULARY) -> Checkpoint:
    model, tokenizer = toy_model(vocab_size=vocabulary), fixed_tokenizer(VOCABULARY)
    return pretrain(mixture_of(), heldout_of(), tokenizer, model, training).on(Fleet(workers=workers))


TRAINING = TrainingConfig(
    steps=20,
    batch_sequences=8,
    optimizer=OptimizerConfig(1e-2),
    warmup_share=0.1,
    validation=ValidationGrid(percents=(50,), sequences=8),
    checkpoints=CheckpointPolicy(every_steps=8, permanent_every_steps=15),
    parallel=ParallelPlan(dp_shard=2, ep=2),
)


@dataclass(frozen=True)
class Trained:
    """The artifacts of one run."""

    checkpoint: Checkpoint
    mixture: Mixture
    heldout: dict[str, TokenShards]

    def heldout_batches(self) -> Iterator[Batch]:
        """The sequences that are validated on, one at a time."""
        for shards in self.heldout.values():
            yield from islice(packed_batches(shards, self.checkpoint.model.sequence_length, 1), 8)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A run on two ranks whose model has room for more ids than the tokenizer has: the step takes the tokenizer's."""
    prefix = str(tmp_path_factory.mktemp("prefix"))
    return Trained(
        checkpoint=materialise(graph(TRAINING, workers=2, vocabulary=VOCABULARY + 32), prefix=prefix),
        mixture=materialise(mixture_of(), prefix=prefix),
        heldout={name: materialise(handle, prefix=prefix) for name, handle in heldout_of().items()},
    )


def test_the_published_checkpoint_is_self_contained(trained: Trained) -> None:
    checkpoint = trained.checkpoint
    assert checkpoint.model == toy_model()
    assert (checkpoint.step, checkpoint.skipped_steps) == (20, 0)
    names = set(checkpoint.names())
    assert {
        "metrics.jsonl",
        "validation.json",
        "curve.svg",
        "checkpoint/COMPLETE.json",
        "checkpoint/progress.json",
    } <= names
    mark = checkpoint.read_json("checkpoint/COMPLETE.json")
    assert {f"checkpoint/{file['name']}" for file in mark["files"]} <= names
    lines = [json.loads(text) for text in checkpoint.read("metrics.jsonl").splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 21))
    assert [validation["step"] for validation in checkpoint.read_json("validation.json")["validations"]] == [10, 20]
    assert len(checkpoint.names("tensorboard/*")) == 1


def test_the_unigram_baseline_is_that_of_a_recount(trained: Trained) -> None:
    epochs = MixtureLoader(trained.mixture, toy_model().sequence_length, 0, TRAINING.sequences).epochs()
    counts = np.ones(VOCABULARY)
    for seed, name in enumerate(("a", "b")):
        for document in counting(seed, 60):
            np.add.at(counts, list(document), epochs[name])
    targets = np.concatenate([batch.targets[batch.loss_mask] for batch in trained.heldout_batches()])
    expected = -np.log(counts / counts.sum())[targets].mean()
    assert trained.checkpoint.unigram_loss == pytest.approx(expected, rel=1e-9)
    assert sum(trained.checkpoint.validation_tokens.values()) == len(targets)
    assert trained.checkpoint.validation_loss < trained.checkpoint.unigram_loss - 0.3


def test_one_process_loads_the_model_and_measures_the_same_loss(trained: Trained) -> None:
    model = load_model(trained.checkpoint)
    nll, tokens = 0.0, 0
    with torch.no_grad():
        for batch in trained.heldout_batches():
            sums = model(*on_device(batch, torch.device("cpu")))
            nll += float(sums.nll_sum)
            tokens += int(sums.token_count)
    assert nll / tokens == pytest.approx(trained.checkpoint.validation_loss, rel=1e-5)


def test_a_permanent_checkpoint_is_published_and_loads_as_the_model_of_its_step(trained: Trained) -> None:
    checkpoint = trained.checkpoint
    assert checkpoint.permanent_steps == (15,)
    mark = checkpoint.read_json("checkpoints/step-00000015/COMPLETE.json")
    assert mark["permanent"] is True
    assert {f"checkpoints/step-00000015/{file['name']}" for file in mark["files"]} <= set(checkpoint.names())
    earlier, last = load_model(checkpoint, step=15), load_model(checkpoint, step=20)
    assert torch.equal(last.get_parameter("embedding.weight"), load_model(checkpoint).get_parameter("embedding.weight"))
    assert not torch.equal(last.get_parameter("embedding.weight"), earlier.get_parameter("embedding.weight"))
    with pytest.raises(CheckpointError, match="no checkpoint of step 8; the run published those of step 15, 20"):
        load_model(checkpoint, step=8)


def test_what_does_not_fit_is_said_before_a_rank_starts(tmp_path: Path) -> None:
    plain = TrainingConfig(steps=2, batch_sequences=3, optimizer=OptimizerConfig(1e-2))
    with pytest.raises(StepError) as caught:
        materialise(graph(plain, workers=2), prefix=str(tmp_path))
    text = str(caught.value)
    assert "parallel plan: dp_replicate 1" in text
    assert "batch_sequences is 3 on 2 ranks" in text
    with pytest.raises(StepError, match=r"model\.vocab_size is 16, but the tokenizer has 32 ids"):
        materialise(graph(plain, workers=1, vocabulary=16), prefix=str(tmp_path))
