"""Continuations, greedy or by seeded sampling. The same prompt gives the same text in any batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import torch
from torch import Tensor

from marin.evaluation.scoring import LogitsModel, pad_right


class Finish(StrEnum):
    """Why a continuation ended."""

    DOCUMENT = "end of document"
    STOP = "stop text"
    LENGTH = "length"


@dataclass(frozen=True)
class Prompt:
    """Ids to continue, the seed of its sampling, and texts at which to stop."""

    ids: tuple[int, ...]
    seed: int
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Generation:
    """New ids (without the end of document), their text up to a stop, and why they end."""

    ids: tuple[int, ...]
    text: str
    finish: Finish


class Generator(Protocol):
    """What the task adapter needs to answer `generate_until`."""

    def generate(self, prompts: Sequence[Prompt], new_tokens: int, temperature: float) -> list[Generation]:
        """One continuation for each prompt, in order."""
        ...


class BatchedGenerator:
    """Generates by reading the whole text again for each token: right for a few short continuations, no more."""

    def __init__(
        self,
        model: LogitsModel,
        decode: Callable[[Sequence[int]], str],
        *,
        eos_id: int | None,
        forbidden: Sequence[int] = (),
        real_vocab_size: int,
        max_length: int,
        batch_size: int = 32,
        device: str = "cpu",
    ) -> None:
        self.model = model
        self.decode = decode
        self.eos_id = eos_id
        self.forbidden = sorted(set(forbidden))
        self.real_vocab_size = real_vocab_size
        self.max_length = max_length
        self.batch_size = batch_size
        self.device = torch.device(device)

    def generate(self, prompts: Sequence[Prompt], new_tokens: int, temperature: float) -> list[Generation]:
        """One continuation of at most `new_tokens` ids for each prompt; temperature 0 is greedy.

        Ids that only pad the vocabulary, and those `forbidden`, are never written.
        """
        for prompt in prompts:
            if not prompt.ids:
                raise ValueError("a prompt has no ids; a model continues at least one token")
        generations: list[Generation] = []
        for first in range(0, len(prompts), self.batch_size):
            generations += self._generate(prompts[first : first + self.batch_size], new_tokens, temperature)
        return generations

    def _generate(self, prompts: Sequence[Prompt], new_tokens: int, temperature: float) -> list[Generation]:
        drawers = [_Drawer(prompt.seed, temperature) for prompt in prompts]
        written: list[list[int]] = [[] for _ in prompts]
        finished: dict[int, Generation] = {}
        for _ in range(new_tokens):
            active = [b for b in range(len(prompts)) if b not in finished]
            if not active:
                break
            rows = [(*prompts[b].ids, *written[b])[-self.max_length :] for b in active]
            for b, logits_V in zip(active, self._last_logits(rows), strict=True):
                token = drawers[b].draw(logits_V)
                if token == self.eos_id:
                    finished[b] = Generation(tuple(written[b]), self.decode(written[b]), Finish.DOCUMENT)
                    continue
                written[b].append(token)
                text = self.decode(written[b]) if prompts[b].stop else ""
                if places := [text.find(stop) for stop in prompts[b].stop if stop and stop in text]:
                    finished[b] = Generation(tuple(written[b]), text[: min(places)], Finish.STOP)
        return [
            finished.get(b) or Generation(tuple(written[b]), self.decode(written[b]), Finish.LENGTH)
            for b in range(len(prompts))
        ]

    @torch.no_grad()
    def _last_logits(self, rows: Sequence[Sequence[int]]) -> list[Tensor]:
        """Logits of the next token of each row, in float64, over the real vocabulary."""
        logits_BTV = self.model(*pad_right(rows, self.device))
        last = []
        for row, logits_TV in zip(rows, logits_BTV, strict=True):
            logits_V = logits_TV[len(row) - 1, : self.real_vocab_size].to("cpu", torch.float64)
            logits_V[self.forbidden] = -torch.inf
            last.append(logits_V)
        return last


class _Drawer:
    """Takes one token from logits [V]; a prompt has its own, so its draws do not depend on its neighbours."""

    def __init__(self, seed: int, temperature: float) -> None:
        self.temperature = temperature
        self.random = torch.Generator().manual_seed(seed)

    def draw(self, logits_V: Tensor) -> int:
        if self.temperature == 0.0:
            return int(logits_V.argmax())
        weights_V = torch.softmax(logits_V / self.temperature, dim=-1)
        # Inverse of the cumulative weights at one uniform draw: exactly one random number a token.
        mark = torch.rand(1, generator=self.random, dtype=torch.float64)
        return int(torch.searchsorted(weights_V.cumsum(0), mark).clamp(max=len(weights_V) - 1))
