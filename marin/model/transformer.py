"""The whole model: embedding, blocks, head. Shape letters: see `marin.model.outputs`."""

from __future__ import annotations

from typing import overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from marin.model.block import Block
from marin.model.config import ComputeConfig, ModelConfig
from marin.model.dispatch import Dispatcher, LocalDispatcher
from marin.model.initialisation import initialise
from marin.model.loss import Head
from marin.model.normalisation import norm_of
from marin.model.outputs import LocalReducer, LossSums, Reducer, RouterStatistics
from marin.model.packing import Packing
from marin.model.router import Router, finish_step


class Embedding(nn.Module):
    """One row a token."""

    def __init__(self, vocab_size: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, width))

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """[B, T] -> [B, T, D]"""
        return F.embedding(tokens_BT, self.weight)


class Transformer(nn.Module):
    """The mixture-of-experts transformer of `ModelConfig`; initialised with seed 0 unless it is on the meta device."""

    def __init__(
        self,
        config: ModelConfig,
        dispatcher: Dispatcher = LocalDispatcher(),
        compute: ComputeConfig = ComputeConfig(),
    ) -> None:
        super().__init__()
        self.config = config
        self.embedding = Embedding(config.vocab_size, config.width)
        self.embedding_norm = norm_of(config) if config.features.embedding_norm else nn.Identity()
        self.blocks = nn.ModuleList(Block(config, i, dispatcher, compute) for i in range(config.layers))
        self.output_norm = norm_of(config)
        self.head = Head(config, compute)
        self._statistics: RouterStatistics | None = None
        if not self.embedding.weight.is_meta:
            self.reset_parameters(0)

    def reset_parameters(self, seed: int) -> None:
        """Initial weights and routing state; the same for the same seed and device type."""
        for name, parameter in self.named_parameters():
            initialise(parameter, name, self.config.width, seed)
        self.reset_routing()

    def reset_routing(self) -> None:
        """Routing state as before the first step."""
        for router in self.routers():
            router.reset_state()
        self._statistics = None

    def routers(self) -> list[Router]:
        """The router of every layer."""
        return [module for module in self.modules() if isinstance(module, Router)]

    def set_dispatcher(self, dispatcher: Dispatcher, dropless: Dispatcher | None = None) -> None:
        """Let every layer reach its experts through `dispatcher`, in evaluation through `dropless` if it is given."""
        for block in self.blocks:
            assert isinstance(block, Block)
            block.moe.dispatcher = dispatcher
            block.moe.dropless = dropless or dispatcher

    def set_reducer(self, reducer: Reducer) -> None:
        """Let every router pool over ranks, within the forward pass, what it cannot wait for until the step's end."""
        for router in self.routers():
            router.reducer = reducer

    @overload
    def __call__(self, tokens_BT: Tensor, segments_BT: Tensor, positions_BT: Tensor) -> Tensor: ...
    @overload
    def __call__(
        self,
        tokens_BT: Tensor,
        segments_BT: Tensor,
        positions_BT: Tensor,
        targets_BT: Tensor,
        loss_mask_BT: Tensor | None = None,
    ) -> LossSums: ...
    def __call__(self, *args: Tensor | None, **kwargs: Tensor | None) -> Tensor | LossSums:
        """See `forward`."""
        result: Tensor | LossSums = super().__call__(*args, **kwargs)
        return result

    def forward(
        self,
        tokens_BT: Tensor,
        segments_BT: Tensor,
        positions_BT: Tensor,
        targets_BT: Tensor | None = None,
        loss_mask_BT: Tensor | None = None,
    ) -> Tensor | LossSums:
        """Logits [B, T, V], or with targets the loss sums over the tokens that the mask marks (all without a mask).

        `segments_BT` is each token's document within its row, `positions_BT` its place in that document. Attention,
        convolutions and positions never cross a document's border.
        """
        states_BTD = self.states(tokens_BT, segments_BT, positions_BT)
        tied = self.embedding.weight if self.config.tied_head else None
        result: Tensor | LossSums = self.head(states_BTD, targets_BT, loss_mask_BT, tied)
        return self._with_router_losses(result, loss_mask_BT) if self.config.balancing.adds_to_loss else result

    def states(self, tokens_BT: Tensor, segments_BT: Tensor, positions_BT: Tensor) -> Tensor:
        """What the head reads: the stream after the last block, normalised. [B, T] -> [B, T, D]"""
        if tokens_BT.shape != segments_BT.shape or tokens_BT.shape != positions_BT.shape:
            raise ValueError(
                f"tokens {tuple(tokens_BT.shape)}, segments {tuple(segments_BT.shape)} and positions "
                f"{tuple(positions_BT.shape)} must have one shape [batch, sequence]"
            )
        if not tokens_BT.numel():
            raise ValueError(
                f"tokens are {list(tokens_BT.shape)}: a batch without a token; give a rank that has none a sequence "
                "that the loss mask leaves out, since all ranks of an exchange of experts take part in it"
            )
        packing = Packing(segments_BT, positions_BT)
        x_BTD = self.embedding_norm(self.embedding(tokens_BT))
        for block in self.blocks:
            x_BTD = block(x_BTD, packing)
        states_BTD: Tensor = self.output_norm(x_BTD)
        return states_BTD

    def _with_router_losses(self, result: Tensor | LossSums, mask_BT: Tensor | None) -> Tensor | LossSums:
        # In the backward pass a block's own losses come after its output, whose arrival makes FSDP gather its weights:
        # autograd takes what was made last first.
        losses = [losses_N for router in self.routers() if (losses_N := router.take_losses()) is not None]
        if isinstance(result, Tensor) or not losses:
            return result
        losses_N = torch.stack(losses).sum(0)
        if mask_BT is not None:
            losses_N = losses_N * mask_BT.flatten()
        return result._replace(total_sum=result.total_sum + losses_N.sum())

    def update_router_bias(self, reducer: Reducer = LocalReducer()) -> RouterStatistics:
        """Set the routers' biases for the next step from all tokens of this one; counts start at zero again.

        Once per optimizer step, on every rank, after the backward pass of the last micro-batch; `reducer` pools them.
        """
        self._statistics = finish_step(self.routers(), reducer)
        return self._statistics

    def router_statistics(self) -> RouterStatistics | None:
        """Routing of the last finished step; None before the first."""
        return self._statistics
