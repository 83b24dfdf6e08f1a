"""Small stand-ins with known answers: codecs, a causal model, a scorer that reads texts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from marin.evaluation.framing import ScoreRequest
from marin.evaluation.generation import Finish, Generation, Prompt
from marin.evaluation.scoring import Score

BOS, EOS, BYTES = 256, 257, 258


class ByteCodec:
    """One id for each byte; documents are framed with `bos` and `eos`; with `adds_bos`, `encode` adds a BOS too."""

    def __init__(self, bos: int | None = BOS, eos: int | None = EOS, adds_bos: bool = False) -> None:
        self.bos, self.eos, self.adds_bos = bos, eos, adds_bos

    def encode(self, text: str) -> list[int]:
        return ([BOS] if self.adds_bos else []) + list(text.encode())

    def encode_document(self, text: str) -> list[int]:
        start, end = ([] if edge is None else [edge] for edge in (self.bos, self.eos))
        return [*start, *text.encode(), *end]

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(i for i in ids if i < 256).decode(errors="replace")


class EntryCodec(ByteCodec):
    """Bytes and a few longer entries, the longest that fits first: like a BPE whose entries cross word borders."""

    def __init__(self, *entries: str, bos: int | None = BOS) -> None:
        super().__init__(bos=bos)
        self.entries = {BYTES + i: entry.encode() for i, entry in enumerate(entries)}

    def encode(self, text: str) -> list[int]:
        ids, rest = [], text.encode()
        while rest:
            fitting = [(len(entry), i) for i, entry in self.entries.items() if rest.startswith(entry)]
            length, index = max(fitting, default=(1, rest[0]))
            ids.append(index)
            rest = rest[length:]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(self.entries.get(i, bytes([i]) if i < 256 else b"") for i in ids).decode(errors="replace")


class PrefixModel:
    """Logits from a running sum over all earlier tokens of the same document: any leak changes them."""

    def __init__(self, vocab_size: int = BYTES, width: int = 24, dtype: torch.dtype = torch.float32) -> None:
        random = torch.Generator().manual_seed(5)
        self.embedding = torch.randn(vocab_size, width, generator=random, dtype=dtype)
        self.head = torch.randn(width, vocab_size, generator=random, dtype=dtype)
        self.seen: list[list[int]] = []

    def __call__(self, tokens_BT: Tensor, segments_BT: Tensor, positions_BT: Tensor) -> Tensor:
        for tokens_T, segments_T in zip(tokens_BT, segments_BT, strict=True):
            self.seen.append(tokens_T[segments_T == 0].tolist())
        same_BTT = segments_BT[:, :, None] == segments_BT[:, None, :]
        causal_BTT = same_BTT & torch.ones_like(same_BTT).tril()
        weight_BT = 1.0 / (1.0 + positions_BT.to(self.embedding.dtype))
        mixed_BTD = causal_BTT.to(self.embedding.dtype) @ (self.embedding[tokens_BT] * weight_BT[..., None])
        return torch.tanh(mixed_BTD) @ self.head


class UniformScorer:
    """Every token has probability 1 / vocab_size."""

    def __init__(self, vocab_size: int = BYTES) -> None:
        self.log_p = -float(torch.log(torch.tensor(float(vocab_size), dtype=torch.float64)))

    def score(self, requests: Sequence[ScoreRequest]) -> list[Score]:
        return [Score(self.log_p * request.scored, False) for request in requests]


class FavouriteScorer:
    """Likes each answer by how often a byte occurs in it: right or wrong answers on demand."""

    def __init__(self, favourite: str) -> None:
        self.favourite = ord(favourite)

    def score(self, requests: Sequence[ScoreRequest]) -> list[Score]:
        scored = [request.ids[len(request.ids) - request.scored :] for request in requests]
        return [Score(float(ids.count(self.favourite)) - len(ids) - 1.0, False) for ids in scored]


class EchoGenerator:
    """Writes the prompt's own bytes again."""

    def generate(self, prompts: Sequence[Prompt], new_tokens: int, temperature: float) -> list[Generation]:
        texts = [bytes(i for i in prompt.ids if i < 256).decode() for prompt in prompts]
        return [Generation(tuple(text.encode()), text, Finish.LENGTH) for text in texts]
