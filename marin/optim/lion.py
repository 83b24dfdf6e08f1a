"""Lion (Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", program 1): the sign of a momentum."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from marin.optim.access import Access, RuleOptimizer, gradient_of
from marin.parallel.parts import local_of


class Lion(RuleOptimizer):
    """w ← (1 − η λ) w − η sign(β₁ m + (1 − β₁) g), then m ← β₂ m + (1 − β₂) g. Elementwise, so any division will do."""

    def update(self, parameters: list[Tensor], group: dict[str, Any], access: Access) -> None:
        """One step; groups carry `lr`, `weight_decay` and `betas`."""
        beta1, beta2 = group["betas"]
        for parameter in parameters:
            state = self.state[parameter]
            if not state:
                state["exp_avg"] = self.zeros(parameter)
            weight, gradient, stored = local_of(parameter), gradient_of(parameter), local_of(state["exp_avg"])
            momentum = access.read(stored, weight.device)
            direction = momentum.lerp(gradient, 1 - beta1).sign_()
            decayed = weight.mul(1 - group["lr"] * group["weight_decay"])
            access.write(weight, decayed.add_(direction, alpha=-group["lr"]))
            access.write(stored, momentum.lerp(gradient, 1 - beta2))
