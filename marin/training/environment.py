"""The torchrun-like environment of a rank: the only place of this room that reads environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class RankEnvironment:
    """Who this process is among the ranks, as torchrun and the gang runner say it."""

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int

    @classmethod
    def read(cls, variables: Mapping[str, str] = os.environ) -> RankEnvironment:
        """From RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE; without RANK this is the only rank."""
        if "RANK" not in variables:
            return cls(rank=0, world_size=1, local_rank=0, local_world_size=1)
        rank, world_size = int(variables["RANK"]), int(variables["WORLD_SIZE"])
        return cls(
            rank=rank,
            world_size=world_size,
            local_rank=int(variables.get("LOCAL_RANK", rank)),
            local_world_size=int(variables.get("LOCAL_WORLD_SIZE", world_size)),
        )
