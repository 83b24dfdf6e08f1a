"""Scores are those of one request read alone, in float64."""

from __future__ import annotations

import math

import pytest
import torch

from marin.evaluation.framing import ScoreRequest
from marin.evaluation.scoring import BatchedScorer
from tests.evaluation.doubles import BYTES, PrefixModel


def scorer(**options):
    return BatchedScorer(PrefixModel(), vocab_size=BYTES, max_length=32, **options)


def alone(request: ScoreRequest) -> float:
    """The sum of log-probabilities, token by token, of a float64 copy of the model."""
    model = PrefixModel()
    model.embedding, model.head = model.embedding.double(), model.head.double()
    total = 0.0
    for place in range(len(request.ids) - request.scored, len(request.ids)):
        if place == 0:
            total -= math.log(BYTES)
            continue
        tokens = torch.tensor([request.ids[:place]])
        logits = model(tokens, torch.zeros_like(tokens), torch.arange(place)[None])[0, -1]
        total += float(torch.log_softmax(logits, -1)[request.ids[place]])
    return total


REQUESTS = [
    ScoreRequest(tuple(b"some text of a length"[:n]), s) for n, s in [(1, 1), (3, 2), (20, 5), (2, 2), (9, 9), (21, 1)]
]


def test_scores_equal_a_slow_reference_in_request_order():
    scores = scorer(batch_size=4).score(REQUESTS)
    assert [s.log_probability for s in scores] == pytest.approx([alone(r) for r in REQUESTS], abs=1e-4)


def test_greedy_is_true_exactly_when_each_token_is_the_likeliest():
    model = PrefixModel()
    ids = [7]
    for _ in range(5):
        tokens = torch.tensor([ids])
        ids.append(int(model(tokens, torch.zeros_like(tokens), torch.arange(len(ids))[None])[0, -1].argmax()))
    wrong = (*ids[:-1], (ids[-1] + 1) % BYTES)
    requests = [(tuple(ids), 5), (wrong, 5), (wrong[:-1], 4), (tuple(ids), 6)]
    scores = scorer().score([ScoreRequest(*request) for request in requests])
    # The last one scores its first token too, which nothing precedes: no token is the likeliest there.
    assert [s.greedy for s in scores] == [True, False, True, False]


def test_a_token_after_nothing_is_a_uniform_guess():
    (score,) = scorer().score([ScoreRequest((65,), 1)])
    assert score.log_probability == pytest.approx(-math.log(BYTES))
    assert not score.greedy


def test_batches_keep_to_the_limits_of_rows_and_positions():
    model = PrefixModel()
    shapes = []

    def spy(tokens, segments, positions):
        shapes.append(tuple(tokens.shape))
        return model(tokens, segments, positions)

    requests = [ScoreRequest(tuple(range(n)), 1) for n in range(2, 30)]
    BatchedScorer(spy, vocab_size=BYTES, max_length=32, batch_size=5, batch_tokens=64).score(requests)
    assert all(rows <= 5 and rows * width <= 64 for rows, width in shapes)
    assert sum(rows for rows, _ in shapes) == len(requests)


def test_a_request_beyond_the_model_is_refused():
    with pytest.raises(ValueError, match="needs 33 positions and the model has 32"):
        scorer().score([ScoreRequest(tuple(range(34)), 1)])


def test_nothing_to_score_gives_nothing():
    assert scorer().score([]) == []
