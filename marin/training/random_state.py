"""The state of torch's generators, as text of a checkpoint's progress."""

from __future__ import annotations

import base64
from collections.abc import Mapping

import numpy as np
import torch


def random_state(device: torch.device) -> dict[str, str]:
    """State of the generators of this rank in base64, by name."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return {name: base64.b64encode(state.numpy().tobytes()).decode() for name, state in states.items()}


def restore_random_state(states: Mapping[str, str], device: torch.device) -> None:
    """Inverse of `random_state`."""
    decoded = {
        name: torch.from_numpy(np.frombuffer(base64.b64decode(text), dtype=np.uint8).copy())
        for name, text in states.items()
    }
    torch.set_rng_state(decoded["cpu"])
    if device.type == "cuda" and "cuda" in decoded:
        torch.cuda.set_rng_state(decoded["cuda"], device)
