"""What one packed batch fixes for every layer: which tokens see which, where documents begin, rotation angles.

Made once a forward pass and handed to every block. A batch row holds several documents one after the other; `segments`
gives each token its document's number and `positions` its place in it. Two tokens belong together when their segment is
equal; the tokens of a document stand side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor

Made = TypeVar("Made")


@dataclass(frozen=True)
class QueryBlock:
    """A run of queries [start, stop) and the run of keys [first, stop) that any of them can see."""

    start: int
    stop: int
    first: int
    masked: int
    """From this key on some query of the block does not see it; all see the keys [first, masked)."""
    bias_B1QK: Tensor
    """For the keys from `masked` on: 0 where the query sees the key, -inf elsewhere."""


@dataclass(frozen=True)
class Packing:
    """Layout of a packed batch."""

    segments_BT: Tensor
    positions_BT: Tensor
    _made: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    def _once(self, key: Any, make: Callable[[], Made]) -> Made:
        if key not in self._made:
            self._made[key] = make()
        made: Made = self._made[key]
        return made

    def visible_BTT(self, window: int | None) -> Tensor:
        """bool [B, query, key]: same document, not in the future, and fewer than `window` positions back."""
        return self._once(("visible", window), lambda: self._visible(0, self.segments_BT.shape[1], 0, window))

    def _visible(self, start: int, stop: int, first: int, window: int | None) -> Tensor:
        device = self.segments_BT.device
        query = torch.arange(start, stop, device=device)[:, None]
        key = torch.arange(first, stop, device=device)[None, :]
        order = query >= key
        if window is not None:
            order &= query - key < window
        return (self.segments_BT[:, start:stop, None] == self.segments_BT[:, None, first:stop]) & order

    def query_blocks(self, window: int | None, size: int, dtype: torch.dtype) -> list[QueryBlock]:
        """Blocks of `size` queries with their keys; keys that the whole block cannot see are left out."""
        return self._once(("blocks", window, size, dtype), lambda: self._query_blocks(window, size, dtype))

    def _query_blocks(self, window: int | None, size: int, dtype: torch.dtype) -> list[QueryBlock]:
        length = self.segments_BT.shape[1]
        # Keys before the document of every row's first query are hidden from the whole block.
        begins = self._document_starts_BT().amin(0).tolist()
        ends = self._document_starts_BT().amax(0).tolist()
        blocks = []
        for start in range(0, length, size):
            stop = min(start + size, length)
            first = begins[start] if window is None else max(begins[start], start - window + 1)
            # All see a key that is in the document of the last query, not after the first one, and in its window.
            reach = first if window is None else max(first, stop - window)
            masked = start + 1 if ends[stop - 1] <= first and reach <= first else first
            visible = self._visible(start, stop, masked, window)
            bias = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
            bias = bias.masked_fill_(~visible, float("-inf")).unsqueeze(1)
            blocks.append(QueryBlock(start, stop, first, masked, bias))
        return blocks

    def _document_starts_BT(self) -> Tensor:
        """Place in its row where each token's document starts."""

        def make() -> Tensor:
            places = torch.arange(self.segments_BT.shape[1], device=self.segments_BT.device)
            begins = torch.ones_like(self.segments_BT, dtype=torch.bool)
            begins[:, 1:] = ~self.same_document_BT(1)
            return torch.where(begins, places, 0).cummax(1).values

        return self._once("document_starts", make)

    def block_mask(self, window: int | None) -> Any:
        """The same visibility as a block mask of flex attention."""

        def make() -> Any:
            from torch.nn.attention.flex_attention import create_block_mask

            segments = self.segments_BT

            def visible(b: Tensor, h: Tensor, query: Tensor, key: Tensor) -> Tensor:
                seen = (segments[b, query] == segments[b, key]) & (query >= key)
                return seen if window is None else seen & (query - key < window)

            batch, length = segments.shape
            return create_block_mask(visible, batch, None, length, length, device=str(segments.device))

        return self._once(("block_mask", window), make)

    def same_document_BT(self, distance: int) -> Tensor:
        """bool [B, T - distance]: token t + distance belongs to the document of token t."""
        segments = self.segments_BT
        return self._once(
            ("same", distance), lambda: segments[:, distance:] == segments[:, : segments.shape[1] - distance]
        )

    def crossings(self, distance: int) -> tuple[Tensor, Tensor]:
        """Rows and columns of the tokens whose predecessor at `distance` belongs to another document."""

        def make() -> tuple[Tensor, Tensor]:
            rows, columns = (~self.same_document_BT(distance)).nonzero(as_tuple=True)
            return rows, columns + distance

        return self._once(("crossings", distance), make)

    def crossings_within(self, count: int) -> tuple[Tensor, Tensor]:
        """Rows and columns of the tokens of which some predecessor closer than `count` belongs to another document."""

        def make() -> tuple[Tensor, Tensor]:
            crossing = torch.zeros_like(self.segments_BT, dtype=torch.bool)
            for distance in range(1, count):
                crossing[:, distance:] |= ~self.same_document_BT(distance)
            rows, columns = crossing.nonzero(as_tuple=True)
            return rows, columns

        return self._once(("crossings_within", count), make)

    def rotation_BTP(self, channels: int, rotated: int, theta: float, dtype: torch.dtype) -> Tensor:
        """Complex factors exp(i · position · theta^(-2j / rotated)) for the pairs j of a head; 1 past `rotated`."""

        def make() -> Tensor:
            pair = torch.arange(0, channels, 2, device=self.positions_BT.device, dtype=torch.float64)
            speed = torch.where(pair < rotated, theta ** (-pair / rotated), 0.0)
            angle = self.positions_BT[..., None].to(torch.float64) * speed
            complex_dtype = torch.complex128 if dtype == torch.float64 else torch.complex64
            return torch.polar(torch.ones_like(angle), angle).to(complex_dtype)

        return self._once(("rotation", channels, rotated, theta, dtype), make)
