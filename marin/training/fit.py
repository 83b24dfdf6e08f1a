"""Does a run fit its cards: memory of the fullest rank with the run's own optimizer, and a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from marin.model.config import ModelConfig
from marin.optim.config import OptimizerConfig
from marin.parallel.fit import RankMemory, StateTensor, rank_memory
from marin.training.config import TrainingConfig

CARD_GB = {
    "A10G": 24,
    "A100": 40,
    "A100-40G": 40,
    "A100-80G": 80,
    "B200": 180,
    "GB200": 186,
    "H100": 80,
    "H200": 141,
    "L4": 24,
    "L40S": 48,
    "MI300X": 192,
    "T4": 16,
    "V100": 16,
}
"""Memory of accelerator cards by the name that Ray gives them, in 10⁹ bytes, from the makers' data sheets (GB200: 13.4
TB over the 72 cards of an NVL72 rack). Where a name stands for two sizes it is the smaller.
"""

USABLE = 0.9
"""Share of a card that may be planned: the rest is for the driver, communication buffers, the optimizer's temporaries
and the allocator's gaps.
"""


@dataclass(frozen=True)
class Fit:
    """Memory of the fullest rank against a card's."""

    memory: RankMemory
    ranks: int
    card: str | None
    card_bytes: int | None

    @property
    def usable_bytes(self) -> int | None:
        """What may be planned of the card; None when it is not known."""
        return None if self.card_bytes is None else int(self.card_bytes * USABLE)

    @property
    def fits(self) -> bool | None:
        """None when the card's memory is not known."""
        return None if self.usable_bytes is None else self.memory.peak <= self.usable_bytes

    @property
    def headroom_bytes(self) -> int | None:
        """What is left of the usable memory; negative when it does not fit."""
        return None if self.usable_bytes is None else self.usable_bytes - self.memory.peak


def card_bytes(accelerator: str | None) -> int | None:
    """Bytes of the cards that Ray calls so; None for no card or an unknown one."""
    size = CARD_GB.get(accelerator or "")
    return None if size is None else size * 10**9


def memory_of(
    model: ModelConfig,
    training: TrainingConfig,
    *,
    ranks: int,
    device_type: str = "cuda",
    imbalance: float = 1.0,
    card_bytes: int | None = None,
) -> RankMemory:
    """Memory of the fullest of `ranks` ranks in the run's first step. Raises ValueError when plan or batch do not fit
    model and ranks. Takes seconds; not inside a gang. `card_bytes` decides what the run decides by its card's memory.
    """
    training.parallel.check(model, ranks)
    micro_batches = training.micro_batches(ranks)
    states = _states(model, training.optimizer)
    return rank_memory(
        model,
        training.parallel,
        lambda name: states[_kind(name)],
        sequences=max(count for _, count in micro_batches),
        micro_batches=len(micro_batches),
        precision=training.precision,
        recompute=training.recompute,
        overlap=training.overlap,
        compute=training.compute,
        device_type=device_type,
        imbalance=imbalance,
        state_on_host=training.optimizer_on_host,
        card_bytes=card_bytes,
    )


def fit_of(
    model: ModelConfig,
    training: TrainingConfig,
    *,
    ranks: int,
    accelerator: str | None,
    memory_gb: float | None = None,
    imbalance: float = 1.0,
) -> Fit:
    """`memory_of` against the cards of a fleet; `memory_gb` (10⁹ bytes) says what a card has, whatever its name."""
    device_type = "cuda" if accelerator or memory_gb else "cpu"
    size = card_bytes(accelerator) if memory_gb is None else int(memory_gb * 1e9)
    memory = memory_of(model, training, ranks=ranks, device_type=device_type, imbalance=imbalance, card_bytes=size)
    return Fit(memory=memory, ranks=ranks, card=accelerator, card_bytes=size)


def _kind(name: str) -> str:
    """A parameter's name without its layer: the optimizer treats all layers alike."""
    first, _, rest = name.partition(".")
    return f"block.{rest.partition('.')[2]}" if first == "blocks" else name


def _states(model: ModelConfig, optimizer: OptimizerConfig) -> dict[str, list[StateTensor]]:
    """What the real optimizer keeps for every kind of parameter, seen on a tiny model with the same parts."""
    from marin.checkpoint.tensors import create_optimizer_state
    from marin.model.transformer import Transformer
    from marin.optim.build import build_optimizer

    tiny = Transformer(_tiny(model))
    made = build_optimizer(tiny, optimizer)
    create_optimizer_state(made)
    found: dict[str, list[StateTensor]] = {}
    for name, parameter in tiny.named_parameters():
        tensors = [state for state in made.state[parameter].values() if hasattr(state, "element_size")]
        found[_kind(name)] = [_as_state(name, parameter.shape, t.shape, t.element_size()) for t in tensors]
    return found


def _as_state(name: str, parameter: Sequence[int], state: Sequence[int], itemsize: int) -> StateTensor:
    shape = list(state) or [1] * len(parameter)
    if len(shape) != len(parameter) or any(b not in (a, 1) for a, b in zip(parameter, shape, strict=True)):
        raise ValueError(
            f"the optimizer keeps a tensor of shape {tuple(state)} for {name} {tuple(parameter)}, and what that is for "
            "a larger model cannot be told"
        )
    return StateTensor(tuple(a == b for a, b in zip(parameter, shape, strict=True)), itemsize)


def _tiny(model: ModelConfig) -> ModelConfig:
    """The same parts with sizes above 1, no two of a matrix's sides alike where they need not be."""
    latent = 8 if model.features.latent_projection else 16
    return replace(
        model,
        vocab_size=24,
        width=16,
        layers=1,
        heads=4,
        head_dim=8,
        local_kv_heads=2,
        global_kv_heads=2,
        experts=3,
        experts_per_token=2,
        latent_width=latent,
        expert_width=12,
        shared_experts=min(model.shared_experts, 2),
        shared_width=8 if model.shared_experts else 0,
        sequence_length=8,
        window=4,
        gate_rank=4,
    )
