"""The model with its optimizer, spread over the ranks: what the loop updates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from marin.execution import derive_seed
from marin.model.config import ModelConfig
from marin.model.outputs import Reducer, RouterStatistics
from marin.model.transformer import Transformer
from marin.optim.build import apply_schedule, build_optimizer
from marin.optim.config import GuardConfig
from marin.optim.guard import StepGuard, step_unless
from marin.optim.loss_scale import LossScale
from marin.parallel.build import build_model
from marin.parallel.config import Precision
from marin.parallel.gradients import clip_gradients, gradient_norm
from marin.parallel.meshes import build_meshes
from marin.parallel.reduction import MeshReducer
from marin.parallel.sharding import compute_dtype, set_last_micro_batch, whole_gradient_bytes
from marin.training.config import TrainingConfig
from marin.training.process_group import RankContext

SKIP_GUARD = "skip_guard"
LOSS_SCALE = "loss_scale"
"""Names under which a checkpoint keeps the states of `Trainee.states`."""


class Trainee:
    """One model under training. The methods about gradients and routing are collective: every rank calls them."""

    def __init__(
        self,
        model: Transformer,
        optimizer: Optimizer,
        *,
        reducer: Reducer,
        compute_dtype: torch.dtype,
        reduce_every_micro_batch: bool = False,
        guard: StepGuard | None = None,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.reducer = reducer
        self.compute_dtype = compute_dtype
        self.reduce_every_micro_batch = reduce_every_micro_batch
        self.guard = guard or StepGuard(GuardConfig(), "cpu")

    def begin_micro_batch(self, *, last: bool) -> None:
        """Says before each micro-batch of a step whether it is the last, after which gradients must be summed."""
        set_last_micro_batch(self.model, last, every=self.reduce_every_micro_batch)

    def scaled(self, loss: Tensor) -> Tensor:
        """What is differentiated instead of a loss: a multiple of it where gradients are computed in fp16."""
        return loss if self.guard.scale is None else self.guard.scale.scaled(loss)

    def unscale_gradients(self) -> None:
        """Makes the gradients of scaled losses those of the losses; once a step."""
        if self.guard.scale is not None:
            self.guard.scale.unscale(self.model)

    def update(self, norm: Tensor, clip: float | None, skip: Tensor) -> None:
        """One optimizer step, with the gradient of this norm scaled down to `clip` when it is given and exceeded.

        Changes nothing where `skip` (0-d, see `marin.optim.guard`) is not zero.
        """
        if clip is not None:
            clip_gradients(self.model, norm, clip)
        step_unless(self.optimizer, skip)

    def gradient_norm(self) -> Tensor:
        """Norm of the gradient over all parameters and ranks, 0-d; the same on every rank."""
        return gradient_norm(self.model)

    def drop_gradients(self) -> None:
        """Leaves no gradient."""
        self.optimizer.zero_grad(set_to_none=True)

    def set_rates(self, share: float, remaining: float) -> dict[str, float]:
        """Sets every group's rate to a share of its peak, and annealed decays to the share of the run that remains.

        Returns the rates by the group's name, or its number.
        """
        apply_schedule(self.optimizer, share, remaining)
        groups = enumerate(self.optimizer.param_groups)
        return {str(group.get("name", index)): float(group["lr"]) for index, group in groups}

    def figures(self) -> dict[str, Any]:
        """For the metrics line, where they were computed: the scale of the loss, if there is one."""
        return {} if self.guard.scale is None else {"loss_scale": self.guard.scale.value}

    def states(self) -> dict[str, dict[str, Any]]:
        """State of the guard and of the loss scale, by name, as JSON; equal on every rank."""
        own: dict[str, dict[str, Any]] = {SKIP_GUARD: self.guard.state()}
        return own if self.guard.scale is None else own | {LOSS_SCALE: self.guard.scale.state()}

    def restore(self, states: Mapping[str, dict[str, Any]]) -> None:
        """Inverse of `states`; what is missing starts afresh, and a scale that is not needed is dropped."""
        if SKIP_GUARD in states:
            self.guard.restore(states[SKIP_GUARD])
        if self.guard.scale is not None and LOSS_SCALE in states:
            self.guard.scale.restore(states[LOSS_SCALE])

    def finish_routing(self, *, update: bool) -> dict[str, Any]:
        """Sets the router biases from the whole step and returns its routing; without `update` the step is forgotten.

        A skipped step leaves no trace in the routers: its counts may come from values that are not finite.
        """
        if not update:
            for router in self.model.routers():
                router.clear_counts()
            return {}
        return routing_figures(self.model.update_router_bias(self.reducer))


def build_trainee(
    model: ModelConfig, training: TrainingConfig, ranks: RankContext, dtype: torch.dtype = torch.float32
) -> Trainee:
    """Initial weights and optimizer of a run: the same for any number of ranks. `dtype` is that of the weights."""
    meshes = build_meshes(training.parallel, ranks.device.type)
    precision = Precision.FP32 if training.debug_numerics else training.precision
    transformer = build_model(
        model,
        meshes=meshes,
        seed=derive_seed(training.seed, "initial weights"),
        device=ranks.device,
        dtype=dtype,
        precision=precision,
        recompute=training.recompute,
        compute=training.compute,
        overlap=training.overlap,
    )
    optimizer = build_optimizer(transformer, training.optimizer, on_host=training.optimizer_on_host)
    computed = compute_dtype(precision, ranks.device.type) or dtype
    scale = LossScale(training.loss_scale, ranks.device) if computed is torch.float16 else None
    card = torch.cuda.get_device_properties(ranks.device).total_memory if ranks.device.type == "cuda" else None
    held = whole_gradient_bytes(transformer, training.parallel)
    return Trainee(
        transformer,
        optimizer,
        reducer=MeshReducer(meshes),
        compute_dtype=computed,
        reduce_every_micro_batch=training.overlap.reduces_every(held, card),
        guard=StepGuard(training.guard, ranks.device, scale),
    )


def routing_figures(statistics: RouterStatistics) -> dict[str, Any]:
    """Routing of a step for the metrics log: the model's summary, and each layer's highest load over its mean load."""
    load = statistics.load_LE.double()
    by_layer = load.amax(1) / load.mean(1).clamp(min=1e-30)
    summary = {name.removeprefix("moe/"): value for name, value in statistics.summary().items()}
    return {**summary, "load_max_over_mean_by_layer": by_layer.tolist()}
