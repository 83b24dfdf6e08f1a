"""Log-probabilities of token ids under a model, in padded batches whose composition never shows in a score.

Shapes: B requests of a batch, T positions, V vocabulary entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from marin.evaluation.framing import ScoreRequest


class LogitsModel(Protocol):
    """A causal model that keeps packed documents apart."""

    def __call__(self, tokens_BT: Tensor, segments_BT: Tensor, positions_BT: Tensor, /) -> Tensor:
        """Next-token logits [B, T, V]."""
        ...


@dataclass(frozen=True)
class Score:
    """Log-probability of a request's scored tokens in nats, and whether each was the likeliest at its place."""

    log_probability: float
    greedy: bool


class Scorer(Protocol):
    """What the task adapter needs of a model."""

    def score(self, requests: Sequence[ScoreRequest]) -> list[Score]:
        """One score for each request, in order."""
        ...


class BatchedScorer:
    """Scores requests by length, longest first, padded on the right.

    Padding cannot leak: attention and convolutions are causal and stay inside one document, padding is a document of
    its own after the request, and evaluation drops no token for capacity.
    """

    def __init__(
        self,
        model: LogitsModel,
        *,
        vocab_size: int,
        max_length: int,
        batch_size: int = 32,
        batch_tokens: int = 4_096,
        device: str = "cpu",
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self.model = model
        self.max_length = max_length
        self.batch_size = batch_size
        self.batch_tokens = batch_tokens
        self.device = torch.device(device)
        self.progress = progress
        # The charge for a token that nothing precedes: a uniform guess.
        self.uniform = -float(torch.log(torch.tensor(float(vocab_size), dtype=torch.float64)))

    def score(self, requests: Sequence[ScoreRequest]) -> list[Score]:
        """One score for each request, in order. Raises `ValueError` for a request longer than the model."""
        for request in requests:
            if len(request.ids) - 1 > self.max_length:
                raise ValueError(
                    f"a request of {len(request.ids)} ids needs {len(request.ids) - 1} positions and the model has "
                    f"{self.max_length}; frame it with Framer"
                )
        scores: list[Score | None] = [None] * len(requests)
        done = 0
        for batch in self._batches(requests):
            for index, score in zip(batch, self._score([requests[i] for i in batch]), strict=True):
                scores[index] = score
            done += len(batch)
            if self.progress is not None:
                self.progress(done, len(requests))
        return [score for score in scores if score is not None]

    def _batches(self, requests: Sequence[ScoreRequest]) -> Iterator[list[int]]:
        """Indices of requests, longest first, within the limits of rows and of positions."""
        order = sorted(range(len(requests)), key=lambda i: len(requests[i].ids), reverse=True)
        first = 0
        while first < len(order):
            width = max(1, len(requests[order[first]].ids) - 1)
            rows = max(1, min(self.batch_size, self.batch_tokens // width))
            yield order[first : first + rows]
            first += rows

    @torch.no_grad()
    def _score(self, requests: Sequence[ScoreRequest]) -> list[Score]:
        inputs = [request.ids[:-1] for request in requests]
        if not inputs[0]:  # sorted: so all are empty
            return [Score(self.uniform, False) for _ in requests]
        logits_BTV = self.model(*pad_right(inputs, self.device))
        scores = []
        for request, logits_TV in zip(requests, logits_BTV, strict=True):
            end = len(request.ids) - 1
            count = request.scored - request.unconditioned
            targets_T = torch.tensor(request.ids[len(request.ids) - count :], dtype=torch.long, device=self.device)
            window_TV = logits_TV[end - count : end]
            window_TV = window_TV.to(torch.promote_types(window_TV.dtype, torch.float32))
            log_p_T = torch.log_softmax(window_TV, dim=-1).gather(-1, targets_T[:, None])[:, 0]
            total = float(log_p_T.sum(dtype=torch.float64)) + (self.uniform if request.unconditioned else 0.0)
            greedy = bool((window_TV.argmax(dim=-1) == targets_T).all()) and not request.unconditioned
            scores.append(Score(total, greedy))
        return scores


def pad_right(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, segments and positions [B, T] of rows of ids; padding is a second document of zeros."""
    width = max(len(row) for row in rows)
    tokens_BT = torch.zeros(len(rows), width, dtype=torch.long)
    segments_BT = torch.ones(len(rows), width, dtype=torch.int32)
    positions_BT = torch.zeros(len(rows), width, dtype=torch.long)
    for b, row in enumerate(rows):
        tokens_BT[b, : len(row)] = torch.tensor(row, dtype=torch.long)
        segments_BT[b, : len(row)] = 0
        positions_BT[b, : len(row)] = torch.arange(len(row))
        positions_BT[b, len(row) :] = torch.arange(width - len(row))
    return tokens_BT.to(device), segments_BT.to(device), positions_BT.to(device)
