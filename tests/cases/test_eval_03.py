"""A score does not depend on who shares the batch, on the order of requests, or on the side of the padding."""

from __future__ import annotations

import random

import pytest
import torch

from marin.evaluation.framing import ScoreRequest
from marin.evaluation.scoring import BatchedScorer
from marin.model.config import ModelConfig
from marin.model.transformer import Transformer

CONFIG = ModelConfig.shaped(
    width=32,
    layers=4,
    vocab_size=97,
    head_dim=16,
    experts=8,
    experts_per_token=2,
    sequence_length=48,
    gate_rank=8,
)
LENGTHS = (2, 3, 5, 8, 13, 17, 24, 31, 40, 49)


@pytest.fixture(scope="module")
def model():
    model = Transformer(CONFIG).eval()
    model.reset_parameters(3)
    with torch.no_grad():  # an initial model says little: make its experts, gates and logits differ
        for parameter in model.parameters():
            parameter.add_(
                0.2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
            )
    return model


@pytest.fixture(scope="module")
def requests():
    draw = random.Random(11)
    return [ScoreRequest(tuple(draw.randrange(97) for _ in range(n)), draw.randrange(1, n)) for n in LENGTHS]


def scores(model, requests, batch_size):
    scorer = BatchedScorer(model, vocab_size=97, max_length=48, batch_size=batch_size)
    return [score.log_probability for score in scorer.score(requests)]


@pytest.mark.parametrize("batch_size", [1, 3, 8])
def test_scores_are_equal_for_every_batch_size_and_order(model, requests, batch_size):
    alone = [scores(model, [request], 1)[0] for request in requests]
    assert len({round(p, 3) for p in alone}) == len(alone)
    assert scores(model, requests, batch_size) == pytest.approx(alone, abs=1e-5, rel=1e-6)
    order = random.Random(batch_size).sample(range(len(requests)), len(requests))
    shuffled = scores(model, [requests[i] for i in order], batch_size)
    assert shuffled == pytest.approx([alone[i] for i in order], abs=1e-5, rel=1e-6)


@torch.no_grad()
def test_padding_on_the_left_leaves_the_logits_of_a_document_alone(model, requests):
    ids = torch.tensor([requests[4].ids])
    count = ids.shape[1]
    alone = model(ids, torch.zeros_like(ids), torch.arange(count)[None])
    tokens = torch.cat([torch.full((1, 9), 5), ids], dim=1)
    segments = torch.cat([torch.zeros(1, 9, dtype=torch.long), torch.ones_like(ids)], dim=1)
    positions = torch.cat([torch.arange(9)[None], torch.arange(count)[None]], dim=1)
    padded = model(tokens, segments, positions)[:, 9:]
    torch.testing.assert_close(padded, alone, atol=1e-5, rtol=1e-5)
