"""The one untyped door to torch's custom autograd functions."""

from __future__ import annotations

from typing import Any

import torch


def apply(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """Call `function.apply`, which torch leaves without types."""
    return function.apply(*arguments)  # type: ignore[no-untyped-call]  # torch gives it no signature
