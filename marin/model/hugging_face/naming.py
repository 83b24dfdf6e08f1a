"""Every configuration field and every tensor under its name in the exported folder. Torch-free.

Where Hugging Face has a name for a thing, that is used; what only this architecture has is named in its style. The
tables are complete in both directions: a field or tensor that they lack is an error, never left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from enum import StrEnum
from typing import Any

from marin.model.config import Balancing, BalancingConfig, CapacityConfig, ModelConfig
from marin.model.features import CombineWeights, Features

CONFIG_FILE = "config.json"
INDEX_FILE = "model.safetensors.index.json"

MODEL_TYPE = "marin_moe"
ARCHITECTURE = "MarinMoeForCausalLM"
SCHEMA = 1
"""Version of the folder's layout; a reader refuses another."""

CONFIG_NAMES = {
    "vocab_size": "vocab_size",
    "width": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "head_dim": "head_dim",
    "local_kv_heads": "num_key_value_heads_sliding",
    "global_kv_heads": "num_key_value_heads_full",
    "experts": "num_experts",
    "experts_per_token": "num_experts_per_tok",
    "latent_width": "moe_latent_size",
    "expert_width": "moe_intermediate_size",
    "shared_experts": "n_shared_experts",
    "shared_width": "shared_expert_intermediate_size",
    "sequence_length": "max_position_embeddings",
    "window": "sliding_window",
    "gate_rank": "norm_gate_rank",
    "conv_taps": "conv_kernel_size",
    "global_every": "full_attention_every",
    "rope_theta": "rope_theta",
    "query_scale": "query_scale",
    "routing_scale": "routed_scaling_factor",
    "norm_eps": "rms_norm_eps",
    "z_loss": "z_loss_coefficient",
    "balancing": "router_balancing",
    "dropout": "hidden_dropout",
    "features": "architecture_features",
    "tied_head": "tie_word_embeddings",
}
"""Field of ModelConfig: name in config.json."""

_NESTED = {"balancing": BalancingConfig, "features": Features}

_NORM = {"gain": "weight", "gate_down": "gate.down_proj.weight", "gate_up": "gate.up_proj.weight"}

OUTER_TENSORS = {
    "embedding.weight": "model.embed_tokens.weight",
    **{f"embedding_norm.{ours}": f"model.embed_norm.{theirs}" for ours, theirs in _NORM.items()},
    **{f"output_norm.{ours}": f"model.norm.{theirs}" for ours, theirs in _NORM.items()},
    "head.weight": "lm_head.weight",
}
LAYER_TENSORS = {
    **{f"attention_norm.{ours}": f"input_layernorm.{theirs}" for ours, theirs in _NORM.items()},
    "attention.query": "self_attn.q_proj.weight",
    "attention.key": "self_attn.k_proj.weight",
    "attention.value": "self_attn.v_proj.weight",
    "attention.output": "self_attn.o_proj.weight",
    "attention.head_gate": "self_attn.head_gate.weight",
    "attention.query_gain": "self_attn.q_norm.weight",
    "attention.key_gain": "self_attn.k_norm.weight",
    "attention.key_convolution.taps": "self_attn.k_conv.weight",
    "attention_convolution.taps": "self_attn.output_conv.weight",
    **{f"moe_norm.{ours}": f"post_attention_layernorm.{theirs}" for ours, theirs in _NORM.items()},
    "moe.router.weight": "mlp.gate.weight",
    "moe.router.bias": "mlp.gate.selection_bias",
    "moe.latent_down": "mlp.latent_down_proj.weight",
    "moe.latent_gain": "mlp.latent_norm.weight",
    "moe.latent_up": "mlp.latent_up_proj.weight",
    "moe.experts.gate_up": "mlp.experts.gate_up_proj",
    "moe.experts.down": "mlp.experts.down_proj",
    "shared.gate_up": "mlp.shared_experts.gate_up_proj",
    "shared.down": "mlp.shared_experts.down_proj",
    "moe_convolution.taps": "mlp.output_conv.weight",
}
"""Tensor of a block: name below model.layers.<n>. in the folder."""

TRAINING_ONLY = frozenset({"moe.router.margin_range"})
"""Persistent buffers of a block that only the next training step reads."""

NEVER_ROUNDED = frozenset(
    {"mlp.gate.weight", "mlp.gate.selection_bias", "mlp.latent_norm.weight", "q_norm.weight", "k_norm.weight"}
    | {f"{norm}.weight" for norm in ("input_layernorm", "post_attention_layernorm", "model.embed_norm", "model.norm")}
)
"""Ends of names that keep full precision, as they have it in training: routing and gains."""

_OURS = re.compile(r"blocks\.(\d+)\.(.+)")


class Precision(StrEnum):
    """How floating-point weights are stored. Router weights and biases and all gains are never rounded."""

    STORED = "stored"
    """As the model holds them."""
    BFLOAT16 = "bfloat16"


class ExportError(ValueError):
    """A folder or a model that the tables of this module do not describe."""


def exported_name(name: str) -> str | None:
    """The name of a model's tensor in the folder; None for state that only training needs."""
    if name in OUTER_TENSORS:
        return OUTER_TENSORS[name]
    if found := _OURS.fullmatch(name):
        layer, rest = found.groups()
        if rest in LAYER_TENSORS:
            return f"model.layers.{layer}.{LAYER_TENSORS[rest]}"
        if rest in TRAINING_ONLY:
            return None
    raise ExportError(
        f"the model's tensor {name!r} has no name in the exported folder; add it to marin.model.hugging_face.naming"
    )


def never_rounded(exported: str) -> bool:
    """True for a tensor whose precision is kept whatever the rest is stored in."""
    return any(exported == end or exported.endswith("." + end) for end in NEVER_ROUNDED)


def config_to_folder(config: ModelConfig) -> dict[str, Any]:
    """The model's part of config.json."""
    values = {field.name: getattr(config, field.name) for field in fields(config)}
    _same("ModelConfig", values, CONFIG_NAMES)
    told = {CONFIG_NAMES[name]: asdict(value) if name in _NESTED else value for name, value in values.items()}
    return {
        "architectures": [ARCHITECTURE],
        "model_type": MODEL_TYPE,
        "marin_schema": SCHEMA,
        **told,
        "layer_types": layer_types(config),
    }


def config_from_folder(told: Mapping[str, Any]) -> ModelConfig:
    """The model's configuration from config.json. Raises `ExportError` for another layout or a missing field."""
    if told.get("model_type") != MODEL_TYPE or told.get("marin_schema") != SCHEMA:
        raise ExportError(
            f"config.json says model_type {told.get('model_type')!r} with marin_schema {told.get('marin_schema')!r}; "
            f"this reads {MODEL_TYPE!r} with {SCHEMA}"
        )
    # Folders that were written before these fields were there are of models that have them at their defaults.
    added: dict[str, Any] = {CONFIG_NAMES["dropout"]: 0.0, CONFIG_NAMES["features"]: asdict(Features())}
    told = added | dict(told)
    if missing := [name for name in CONFIG_NAMES.values() if name not in told]:
        raise ExportError(f"config.json lacks {', '.join(missing)}")
    values = {ours: told[theirs] for ours, theirs in CONFIG_NAMES.items()}
    # The same for what balancing did not have at first.
    values["balancing"] = asdict(BalancingConfig()) | dict(values["balancing"])
    for name, kind in _NESTED.items():
        _same(CONFIG_NAMES[name], values[name], {field.name for field in fields(kind)})
    balancing, features = dict(values.pop("balancing")), dict(values.pop("features"))
    balancing["kind"] = Balancing(balancing["kind"])
    if balancing["capacity"] is not None:
        balancing["capacity"] = CapacityConfig(**balancing["capacity"])
    features["combine_weights"] = CombineWeights(features["combine_weights"])
    config = ModelConfig(**values, balancing=BalancingConfig(**balancing), features=Features(**features))
    if told.get("layer_types", layer_types(config)) != layer_types(config):
        raise ExportError("config.json's layer_types are not those of its full_attention_every and num_hidden_layers")
    return config


def layer_types(config: ModelConfig) -> list[str]:
    """Hugging Face's word for the kind of attention of each layer."""
    return ["full_attention" if config.is_global(layer) else "sliding_attention" for layer in range(config.layers)]


def _same(what: str, found: Iterable[str], known: Iterable[str]) -> None:
    if odd := sorted(set(found) ^ set(known)):
        raise ExportError(f"{what} and the table of marin.model.hugging_face.naming differ in {', '.join(odd)}")
