"""`MarinConfig`: the model's configuration under Hugging Face's field names. Torch-free."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from marin.model.config import BalancingConfig, ModelConfig
from marin.model.features import Features
from marin.model.hugging_face.naming import CONFIG_FILE, CONFIG_NAMES, config_from_folder, config_to_folder


@dataclass(frozen=True, kw_only=True)
class MarinConfig:
    """Every field may be left out: sizes that are None follow from the others by the rules of the published ladder.

    The defaults are those of its smallest rung. `model_config` is the same configuration in the words of this project.
    """

    vocab_size: int = 128_256
    hidden_size: int = 768
    num_hidden_layers: int = 8
    num_attention_heads: int | None = None
    """None: hidden_size / head_dim."""
    head_dim: int | None = None
    """None: hidden_size / num_attention_heads, or 128 when that is None too."""
    num_key_value_heads: int | None = None
    """Of every layer, unless the two below say otherwise."""
    num_key_value_heads_sliding: int | None = None
    num_key_value_heads_full: int | None = None
    num_experts: int | None = None
    """None: 384."""
    num_local_experts: int | None = None
    """Another name of num_experts."""
    num_experts_per_tok: int = 8
    moe_latent_size: int | None = None
    moe_intermediate_size: int | None = None
    n_shared_experts: int = 2
    shared_expert_intermediate_size: int | None = None
    max_position_embeddings: int = 4096
    """Sequence length of training; longer ones are computed as well."""
    sliding_window: int | None = None
    """None: half of max_position_embeddings."""
    norm_gate_rank: int = 128
    conv_kernel_size: int = 4
    full_attention_every: int = 4
    rope_theta: float = 10_000.0
    query_scale: float = 1.3
    routed_scaling_factor: float = 2.5
    rms_norm_eps: float = 1e-5
    z_loss_coefficient: float = 1e-4
    router_balancing: BalancingConfig = field(default_factory=BalancingConfig)
    architecture_features: Features = field(default_factory=Features)
    hidden_act: str = "silu"
    hidden_dropout: float | None = None
    """The same as dropout."""
    dropout: float | None = None
    """Share of the values that attention and experts add to the stream which is zeroed in training; None: 0."""
    attention_dropout: float = 0.0
    tie_word_embeddings: bool = False

    def __post_init__(self) -> None:
        fixed = {"hidden_act": "silu", "attention_dropout": 0.0}
        for name, value in fixed.items():
            if getattr(self, name) != value:
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}; this architecture has it as {value!r}"
                    + ("; dropout acts on the stream" if name == "attention_dropout" else "")
                )
        self._same("num_experts", "num_local_experts", 384)
        self._same("dropout", "hidden_dropout", 0.0)
        for name, kind in (("router_balancing", BalancingConfig), ("architecture_features", Features)):
            if not isinstance(getattr(self, name), kind):
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}; give a {kind.__name__}, or read a config.json with from_dict"
                )
        if not isinstance(self.tie_word_embeddings, bool):
            raise ValueError(f"tie_word_embeddings is {self.tie_word_embeddings!r}; give True or False")
        for name in ("hidden_size", "num_attention_heads"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} is {value!r}; it counts something and must be a whole number, at least 1")
        if self.num_attention_heads is not None and self.head_dim is None:
            if self.hidden_size % self.num_attention_heads:
                raise ValueError(
                    f"hidden_size {self.hidden_size} is not a multiple of num_attention_heads "
                    f"{self.num_attention_heads}; change one, or give head_dim"
                )
            self._set("head_dim", self.hidden_size // self.num_attention_heads)
        for name in ("num_key_value_heads_sliding", "num_key_value_heads_full"):
            if getattr(self, name) is None:
                self._set(name, self.num_key_value_heads)
        told = {ours: getattr(self, theirs) for ours, theirs in CONFIG_NAMES.items()}
        made = ModelConfig.shaped(**{name: value for name, value in told.items() if value is not None})
        for ours, theirs in CONFIG_NAMES.items():
            self._set(theirs, getattr(made, ours))
        if self.num_key_value_heads is None:
            self._set("num_key_value_heads", made.kv_heads)

    @property
    def model_config(self) -> ModelConfig:
        """The same in the words of `marin.model.config`."""
        return ModelConfig(**{ours: getattr(self, theirs) for ours, theirs in CONFIG_NAMES.items()})

    @classmethod
    def of(cls, model: ModelConfig) -> MarinConfig:
        """The configuration of a model of this project."""
        return cls(**{theirs: getattr(model, ours) for ours, theirs in CONFIG_NAMES.items()})

    def to_dict(self) -> dict[str, Any]:
        """The content of config.json."""
        return config_to_folder(self.model_config)

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> MarinConfig:
        """From the content of config.json; raises `ExportError` when it is of another model."""
        return cls.of(config_from_folder(told))

    @classmethod
    def from_pretrained(cls, folder: Path | str) -> MarinConfig:
        """From a local folder that holds config.json."""
        return cls.from_dict(json.loads((Path(folder) / CONFIG_FILE).read_text(encoding="utf-8")))

    def _same(self, name: str, alias: str, default: Any) -> None:
        """Give a field and its other name one value."""
        given = {getattr(self, one) for one in (name, alias)} - {None}
        if len(given) > 1:
            raise ValueError(f"{name} is {getattr(self, name)} and {alias} {getattr(self, alias)}; they are one field")
        for one in (name, alias):
            self._set(one, next(iter(given), default))

    def _set(self, name: str, value: Any) -> None:
        assert name in {one.name for one in fields(self)}
        object.__setattr__(self, name, value)
