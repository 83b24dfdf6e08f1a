"""`MarinModel` and `MarinForCausalLM`: the transformer called and stored as Hugging Face's models are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from marin.model.hugging_face.config import MarinConfig
from marin.model.hugging_face.folder import read_config, read_weights, write_model
from marin.model.outputs import LossSums
from marin.model.transformer import Transformer

IGNORED_LABEL = -100
HEAD = "lm_head.weight"


@dataclass(frozen=True)
class MarinModelOutput:
    """What `MarinModel` returns."""

    last_hidden_state: Tensor
    """[batch, sequence, hidden_size]: the stream after the last block, normalised."""


@dataclass(frozen=True)
class MarinCausalLMOutput:
    """What `MarinForCausalLM` returns."""

    loss: Tensor | None
    """Mean over the labels that count of the cross-entropy, and the z-loss with its weight; None without labels."""
    logits: Tensor | None
    """[batch, sequence, vocab_size]; None with labels, whose loss is made in pieces without all logits in memory."""


class _Stored(nn.Module):
    """A transformer with the reading, writing and calling that the two models share."""

    ignored: tuple[str, ...] = ()

    def __init__(self, config: MarinConfig) -> None:
        super().__init__()
        self.config = config
        self.transformer = Transformer(config.model_config)

    @classmethod
    def from_pretrained(cls, folder: Path | str) -> Self:
        """The model of a local folder, in evaluation mode; raises `ExportError` when its tensors do not fit."""
        model = cls(MarinConfig.of(read_config(folder)))
        read_weights(model.transformer, folder, ignored=cls.ignored)
        return model.eval()

    def save_pretrained(self, folder: Path | str) -> None:
        """Write config.json and the weights into a local folder, which is made if need be."""
        place = Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        write_model(self.transformer, lambda name, data: _write(place / name, data))


class MarinModel(_Stored):
    """The transformer without its head."""

    ignored = (HEAD,)

    def __init__(self, config: MarinConfig) -> None:
        super().__init__(config)
        del self.transformer.head

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None
    ) -> MarinModelOutput:
        """Hidden states of the tokens [batch, sequence]; see `layout` for the mask and the positions."""
        return MarinModelOutput(self.transformer.states(input_ids, *layout(input_ids, attention_mask, position_ids)))


class MarinForCausalLM(_Stored):
    """The transformer with its head."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> MarinCausalLMOutput:
        """Logits, or with `labels` the loss; see `layout` for the mask and the positions.

        `labels` are the input tokens themselves: position t is asked for label t + 1 of the same document. Those of
        -100 and those of padding count for nothing.
        """
        segments, positions = layout(input_ids, attention_mask, position_ids)
        if labels is None:
            return MarinCausalLMOutput(loss=None, logits=self.transformer(input_ids, segments, positions))
        targets = torch.full_like(labels, IGNORED_LABEL)
        targets[:, :-1] = labels[:, 1:]
        real = targets != IGNORED_LABEL
        real[:, :-1] &= (segments[:, :-1] == segments[:, 1:]) & (segments[:, 1:] >= 0)
        sums: LossSums = self.transformer(input_ids, segments, positions, targets, real)
        return MarinCausalLMOutput(loss=sums.total_sum / sums.token_count.clamp(min=1), logits=None)


def layout(
    input_ids: Tensor, attention_mask: Tensor | None = None, position_ids: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Segments and positions of a batch [batch, sequence].

    `attention_mask` is 0 at padding, on either side, and not in between (ValueError): real tokens never see it and
    their positions do not count it. What is returned at padding means nothing; in training its tokens take part in the
    routers' counts. Where `position_ids` start again at 0, another document begins, as in a packed batch.
    """
    for name, given in (("attention_mask", attention_mask), ("position_ids", position_ids)):
        if given is not None and given.shape != input_ids.shape:
            raise ValueError(
                f"{name} is {list(given.shape)} and input_ids {list(input_ids.shape)}; give one value a token"
            )
    if input_ids.dim() != 2:
        raise ValueError(f"input_ids is {list(input_ids.shape)}; give [batch, sequence]")
    real = torch.ones_like(input_ids) if attention_mask is None else (attention_mask != 0).to(input_ids.dtype)
    starts = real.diff(dim=1, prepend=torch.zeros_like(real[:, :1])) > 0
    if attention_mask is not None and bool((starts.sum(1) > 1).any()):
        raise ValueError("attention_mask has real tokens before and after masked ones; mask padding at the sides only")
    positions = (real.cumsum(1) - 1).clamp(min=0) if position_ids is None else position_ids
    begins = torch.zeros_like(input_ids) if position_ids is None else (position_ids == 0).to(input_ids.dtype)
    return torch.where(real == 1, begins.cumsum(1), -1), positions


def _write(path: Path, data: bytes) -> Any:
    path.write_bytes(data)
