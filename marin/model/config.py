"""The shape of the transformer: one frozen, validated dataclass. Imports nothing heavy.

Two ways to make one: by fields, or by `ModelConfig.shaped(width=…, layers=…)`, which applies the shape rules that all
published rungs (and the 535B model itself) follow, so that a rung is one line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from marin.execution.fields import added, refuse_infinite
from marin.model.features import CombineWeights, Features

PUBLISHED_RUNGS: Mapping[str, tuple[int, int]] = {
    "d768": (768, 8),
    "d1024": (1024, 12),
    "d1536": (1536, 16),
    "d2048": (2048, 22),
    "hero": (6144, 48),
}
"""Name of a published rung: (width, layers)."""


class Balancing(StrEnum):
    """How the router bias follows the load."""

    QUANTILE = "quantile"
    """Replaced every step by the quantile of the margins (model.md); no coefficient."""
    SIGN = "sign"
    """Moved every step by `sign_step` towards the mean load (the auxiliary-loss-free rule)."""
    AUXILIARY = "auxiliary"
    """No bias: the loss has a term, times `auxiliary_coefficient`, that is least when all experts are used alike."""
    NONE = "none"


@dataclass(frozen=True)
class CapacityConfig:
    """Limits to the assignments that travel between ranks in training; what is beyond them is dropped and counted.

    The even share is what a rank gets when all experts are chosen alike. What is dropped depends on who shares experts
    (ep) and on the size of a micro-batch; with ep 1 nothing is. Evaluation never drops anything.
    """

    factor_sender: float = 1.15
    """A rank sends each rank at most this many times the even share of its own assignments."""
    factor_receiver: float = 1.15
    """A rank takes at most this many times the even share of all ranks' assignments; binds only where it is lower than
    `factor_sender`.
    """

    def __post_init__(self) -> None:
        refuse_infinite(self, "balancing.capacity.")
        for name in ("factor_sender", "factor_receiver"):
            if not getattr(self, name) >= 1:
                raise ValueError(
                    f"balancing.capacity.{name} is {getattr(self, name)}; below 1 even perfectly balanced assignments "
                    "would be dropped: give at least 1 (the published run: 1.15), or capacity null to drop nothing"
                )


@dataclass(frozen=True)
class BalancingConfig:
    """Load balancing of the router. The bias only takes part in the choice, never in the combine weights."""

    kind: Balancing = Balancing.QUANTILE
    bins: int = 10_000
    """Histogram bins of one expert's margins."""
    widening: float = 0.1
    """The next step's histogram covers this step's range, widened on each side by this share of it."""
    sign_step: float = 0.001
    auxiliary_coefficient: float = added(0.01, since="2026-11-30")
    """auxiliary: weight of the balance loss of each layer, E · Σ_e load share · mean probability, in the loss."""
    router_z_loss: float = added(0.0, since="2026-11-30")
    """Weight of the mean squared log-partition of each layer's router logits in the loss, with any kind."""
    capacity: CapacityConfig | None = added(None, since="2026-11-30")
    """Null: no assignment is ever dropped."""

    def __post_init__(self) -> None:
        refuse_infinite(self, "balancing.")
        if self.router_z_loss < 0:
            raise ValueError(f"balancing.router_z_loss is {self.router_z_loss}; give 0 to switch it off")
        if self.auxiliary_coefficient < 0:
            raise ValueError(
                f"balancing.auxiliary_coefficient is {self.auxiliary_coefficient}; give 0 or more (0.01 is usual)"
            )
        if self.bins < 2:
            raise ValueError(f"balancing.bins is {self.bins}; a histogram needs at least 2 bins (the recipe has 10000)")
        if self.widening < 0:
            raise ValueError(
                f"balancing.widening is {self.widening}; give a share of the range, 0 or more (recipe: 0.1)"
            )
        if self.sign_step <= 0:
            raise ValueError(f"balancing.sign_step is {self.sign_step}; give a positive step, or kind 'none'")

    @property
    def adds_to_loss(self) -> bool:
        """Whether the routers add something to the loss."""
        return self.router_z_loss > 0 or (self.kind is Balancing.AUXILIARY and self.auxiliary_coefficient > 0)


@dataclass(frozen=True)
class ModelConfig:
    """Shape of the mixture-of-experts transformer. Sizes count elements; nothing is special to one scale."""

    vocab_size: int
    width: int
    layers: int
    heads: int
    head_dim: int
    local_kv_heads: int
    global_kv_heads: int
    experts: int
    experts_per_token: int
    latent_width: int
    expert_width: int
    shared_experts: int
    shared_width: int
    sequence_length: int
    window: int
    """Keys that a query of a local layer sees, itself included."""
    gate_rank: int = 128
    """Inner width of the gate that follows every normalisation."""
    conv_taps: int = 4
    global_every: int = 4
    """Layer i is global when (i + 1) is a multiple of this, and the last layer always is."""
    rope_theta: float = 10_000.0
    query_scale: float = 1.3
    routing_scale: float = 2.5
    """The combine weights of a token's experts sum to this."""
    norm_eps: float = 1e-5
    z_loss: float = 1e-4
    """Weight of the mean squared log-partition in the loss."""
    balancing: BalancingConfig = field(default_factory=BalancingConfig)
    dropout: float = added(0.0, since="2026-11-30")
    """Share of the values that attention and experts add to the stream which is zeroed in training, from torch's own
    random state.
    """
    features: Features = added(
        {
            "gated_norm": True,
            "embedding_norm": True,
            "short_convolution": True,
            "query_key_gain": False,
            "rotary_share": 0.5,
            "global_positions": False,
            "exclusive_attention": True,
            "head_gate": True,
            "latent_projection": True,
            "combine_weights": CombineWeights.SIGMOID,
        },
        since="2026-11-30",
        default_factory=Features,
    )
    tied_head: bool = added(False, since="2026-11-30")
    """The output head is the embedding: one matrix, which learns from both uses as the head does."""

    def __post_init__(self) -> None:
        refuse_infinite(self)
        sizes = (
            "vocab_size width layers heads head_dim local_kv_heads global_kv_heads experts experts_per_token "
            "latent_width expert_width sequence_length window gate_rank conv_taps global_every"
        )
        for name in sizes.split():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}; it counts something and must be a whole number, at least 1")
        if self.shared_experts < 0 or (self.shared_experts and self.shared_width < 1):
            raise ValueError(
                f"shared_experts is {self.shared_experts} with shared_width {self.shared_width}; "
                "give both at least 1, or shared_experts 0"
            )
        for name in ("local_kv_heads", "global_kv_heads"):
            if self.heads % getattr(self, name):
                raise ValueError(
                    f"heads {self.heads} is not a multiple of {name} {getattr(self, name)}: query heads share "
                    f"key-value heads in equal groups; give a divisor of {self.heads}"
                )
        share = self.features.rotary_share
        if share and (self.head_dim % 2 or self.head_dim * share % 2):
            raise ValueError(
                f"head_dim is {self.head_dim}; a share of {share} of its channels is rotated in pairs, so give a "
                f"multiple of {max(2, round(2 / share))}, or another features.rotary_share"
            )
        if not self.features.latent_projection and self.latent_width != self.width:
            raise ValueError(
                f"latent_width is {self.latent_width} and width {self.width} without features.latent_projection; "
                "experts then work in the model's width, so make them equal"
            )
        if self.experts_per_token >= self.experts:
            raise ValueError(
                f"experts_per_token is {self.experts_per_token} of {self.experts} experts; the router needs one expert "
                "more than it chooses (its threshold): lower experts_per_token or raise experts"
            )
        if self.norm_eps <= 0 or self.rope_theta <= 1 or self.query_scale <= 0 or self.routing_scale <= 0:
            raise ValueError(
                f"norm_eps {self.norm_eps}, rope_theta {self.rope_theta}, query_scale {self.query_scale}, "
                f"routing_scale {self.routing_scale}: all must be positive, and rope_theta greater than 1"
            )
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}; give a share from 0 (none) to below 1")
        if self.z_loss < 0:
            raise ValueError(f"z_loss is {self.z_loss}; give 0 to switch it off")

    @classmethod
    def shaped(cls, *, width: int, layers: int, **sizes: Any) -> ModelConfig:
        """The shape rules of the published ladder at any width; every field can be overridden by name.

        heads = width / head_dim; key-value heads of a local layer = heads // 4, of a global one = heads // 8 (at least
        1, rounded down to a divisor of heads); latent, expert and shared width = width / 2; 384 experts, 8 a token,
        2 shared; 128,256 tokens; 4,096 positions; window = half of the sequence.
        """
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(sizes) - known):
            raise ValueError(f"unknown field {unknown[0]!r}; ModelConfig has {', '.join(sorted(known))}")
        head_dim = sizes.get("head_dim", 128)
        for name, value in (("width", width), ("head_dim", head_dim), ("heads", sizes.get("heads", 1))):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} is {value!r}; it counts something and must be a whole number, at least 1")
        if "heads" not in sizes and width % head_dim:
            raise ValueError(f"width {width} is not a multiple of head_dim {head_dim}; change one, or give heads")
        heads = sizes.get("heads", width // head_dim)
        shape: dict[str, Any] = {
            "vocab_size": 128_256,
            "heads": heads,
            "head_dim": head_dim,
            "local_kv_heads": _divisor_at_most(heads, heads // 4),
            "global_kv_heads": _divisor_at_most(heads, heads // 8),
            "experts": 384,
            "experts_per_token": 8,
            "latent_width": width // 2,
            "expert_width": width // 2,
            "shared_experts": 2,
            "shared_width": width // 2,
            "sequence_length": 4096,
        }
        shape.update(sizes)
        shape.setdefault("window", max(1, shape["sequence_length"] // 2))
        return cls(width=width, layers=layers, **shape)

    @classmethod
    def hero(cls) -> ModelConfig:
        """The 535B-A23B model."""
        return cls.rung("hero")

    @classmethod
    def rung(cls, name: str) -> ModelConfig:
        """A published rung: d768, d1024, d1536, d2048 or hero."""
        if name not in PUBLISHED_RUNGS:
            raise ValueError(f"rung is {name!r}; published are {', '.join(PUBLISHED_RUNGS)}")
        width, layers = PUBLISHED_RUNGS[name]
        return cls.shaped(width=width, layers=layers)

    @property
    def kv_heads(self) -> int:
        """Key-value heads that every layer stores; a layer uses its first `kv_heads_of(layer)`."""
        return max(self.local_kv_heads, self.global_kv_heads)

    @property
    def rotary_dim(self) -> int:
        """Channels of a head that carry the position in a local layer."""
        return int(self.head_dim * self.features.rotary_share)

    def has_positions(self, layer: int) -> bool:
        """True when `layer` rotates queries and keys by their position."""
        return self.rotary_dim > 0 and (self.features.global_positions or not self.is_global(layer))

    def is_global(self, layer: int) -> bool:
        """True when `layer` (from 0) sees the whole document and has no position encoding."""
        return (layer + 1) % self.global_every == 0 or layer == self.layers - 1

    def kv_heads_of(self, layer: int) -> int:
        """Key-value heads that `layer` uses."""
        return self.global_kv_heads if self.is_global(layer) else self.local_kv_heads


class AttentionBackend(StrEnum):
    """Which code computes attention; all give the same numbers."""

    AUTO = "auto"
    """flex on CUDA, blocks elsewhere."""
    BLOCKS = "blocks"
    """Batched matrix products over blocks of queries and the keys that they can see."""
    SDPA = "sdpa"
    """torch's scaled_dot_product_attention with a boolean mask."""
    FLEX = "flex"
    """Compiled flex attention with a block mask; CUDA only."""


ALL_TO_ALL = "all_to_all"
"""Name of the exchange that is built in."""


class ExpertBackend(StrEnum):
    """Which code multiplies the experts' matrices; all give the same numbers."""

    AUTO = "auto"
    """On CUDA grouped where type and shape allow it. On the CPU the same while experts have few rows, and loop for
    many. Where grouped cannot be had, padded for few rows and loop for many.
    """
    LOOP = "loop"
    """One matrix product after the other."""
    PADDED = "padded"
    """One batched product, every expert filled up with zeros to the longest."""
    GROUPED = "grouped"
    """torch's grouped matrix product."""


@dataclass(frozen=True)
class ComputeConfig:
    """How the model is computed; never changes what it computes beyond rounding."""

    attention: AttentionBackend = AttentionBackend.AUTO
    experts: ExpertBackend = ExpertBackend.AUTO
    dispatch: str = ALL_TO_ALL
    """How tokens travel to experts on other ranks: all_to_all, or module:function of a back end (see
    `marin.parallel.exchange.DispatcherFactory`).
    """
    attention_block: int = 64
    """Queries of one block of the blocks back end."""
    compile: bool = False
    """Compile the parts of every block that have no experts with torch.compile; CUDA only."""
    loss_chunk: int | None = None
    """Logits (tokens · vocabulary) that are in memory at once, at least one token's; null: what suits the device."""

    def __post_init__(self) -> None:
        for name in ("attention_block", "loss_chunk"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"compute.{name} is {value}; give at least 1")
        if self.dispatch != ALL_TO_ALL and ":" not in self.dispatch:
            raise ValueError(
                f"compute.dispatch is {self.dispatch!r}; give {ALL_TO_ALL}, or module:function of a back end"
            )


def _divisor_at_most(number: int, limit: int) -> int:
    """The largest divisor of `number` that is at most `limit`, and at least 1."""
    return next((n for n in range(min(limit, number), 0, -1) if number % n == 0), 1)
