"""Training of a small model on one batch."""

from __future__ import annotations

from torch.optim import Optimizer

from marin.model.transformer import Transformer
from tests.model.small import packed


def losses_of(model: Transformer, optimizer: Optimizer, steps: int) -> list[float]:
    """The mean loss of each of some steps on the same batch, in nats per token."""
    batch, losses = packed(batch=4), []
    for _ in range(steps):
        sums = model(**batch)
        (sums.total_sum / sums.token_count).backward()
        optimizer.step()
        optimizer.zero_grad()
        model.update_router_bias()
        losses.append(float(sums.nll_sum) / int(sums.token_count))
    return losses
