"""An exported model is the same model when it is read back, and the folder says all that is needed to do so."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from marin.model.config import Balancing, BalancingConfig, ModelConfig
from marin.model.hugging_face.folder import import_model, write_model
from marin.model.hugging_face.naming import (
    CONFIG_NAMES,
    ExportError,
    Precision,
    config_from_folder,
    config_to_folder,
    exported_name,
    never_rounded,
)
from marin.model.transformer import Transformer

CONFIG = ModelConfig.shaped(
    width=32,
    layers=5,
    vocab_size=61,
    head_dim=8,
    experts=6,
    experts_per_token=2,
    sequence_length=24,
    gate_rank=8,
    balancing=BalancingConfig(kind=Balancing.SIGN, sign_step=0.01),
)


@pytest.fixture(scope="module")
def model():
    model = Transformer(CONFIG)
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():
                tensor.add_(0.1 * torch.randn(tensor.shape, generator=random))
    return model.eval()


@torch.no_grad()
def logits(model):
    tokens = torch.randint(0, 61, (2, 24), generator=torch.Generator().manual_seed(1))
    segments = (torch.arange(24) >= 10).long().expand(2, 24)
    positions = torch.where(segments == 1, torch.arange(24) - 10, torch.arange(24))
    return model(tokens, segments, positions)


def written(model, folder, **how):
    return write_model(model, lambda name, data: (folder / name).write_bytes(data) and None, **how)


def test_logits_of_the_read_model_are_equal_bit_for_bit(model, tmp_path):
    weights = written(model, tmp_path)
    assert weights.files == ("model.safetensors",)
    assert torch.equal(logits(import_model(tmp_path)), logits(model))


def test_a_float64_model_stays_float64(model, tmp_path):
    double = Transformer(CONFIG).double()
    double.load_state_dict(model.state_dict())
    written(double.eval(), tmp_path)
    again = import_model(tmp_path)
    assert {p.dtype for p in again.parameters()} == {torch.float64}
    assert torch.equal(logits(again), logits(double))


def test_several_files_hold_each_tensor_once_and_read_the_same(model, tmp_path):
    weights = written(model, tmp_path, shard_bytes=20_000)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    assert len(weights.files) > 2
    assert set(index["weight_map"].values()) == set(weights.files)
    held = [name for file in weights.files for name in load_file(tmp_path / file)]
    assert sorted(held) == sorted(index["weight_map"])
    assert len(held) == len(set(held))
    assert torch.equal(logits(import_model(tmp_path)), logits(model))


def test_rounded_weights_keep_router_and_gains_in_full_precision(model, tmp_path):
    written(model, tmp_path, precision=Precision.BFLOAT16)
    stored = load_file(tmp_path / "model.safetensors")
    kept = {re.sub(r"\.\d+\.", ".N.", name) for name, tensor in stored.items() if tensor.dtype is torch.float32}
    assert kept == {
        "model.embed_norm.weight",
        "model.norm.weight",
        "model.layers.N.input_layernorm.weight",
        "model.layers.N.post_attention_layernorm.weight",
        "model.layers.N.mlp.latent_norm.weight",
        "model.layers.N.mlp.gate.weight",
        "model.layers.N.mlp.gate.selection_bias",
    }
    again = import_model(tmp_path).state_dict()
    for name, tensor in model.state_dict().items():
        exported = exported_name(name)
        if exported is not None:
            expected = tensor if never_rounded(exported) else tensor.bfloat16().float()
            assert torch.equal(again[name], expected), name


def test_every_field_of_the_configuration_comes_back(model):
    assert set(CONFIG_NAMES) == {field.name for field in fields(ModelConfig)}
    assert len(set(CONFIG_NAMES.values())) == len(CONFIG_NAMES)
    for config in (CONFIG, ModelConfig.hero(), replace(CONFIG, rope_theta=5e5, z_loss=0.0)):
        told = json.loads(json.dumps(config_to_folder(config), allow_nan=False))
        assert config_from_folder(told) == config


def test_every_tensor_has_a_name_of_its_own_and_unknown_ones_are_refused(model):
    names = [exported_name(name) for name in model.state_dict()]
    assert names.count(None) == CONFIG.layers  # the range of the balancing histogram, which only training reads
    assert len(set(names)) == len(names) - CONFIG.layers + 1
    with pytest.raises(ExportError, match=r"'blocks\.0\.attention\.mystery' has no name"):
        exported_name("blocks.0.attention.mystery")


def test_the_folder_counts_its_values(model, tmp_path):
    weights = written(model, tmp_path)
    learned = sum(parameter.numel() for parameter in model.parameters())
    assert weights.values == learned + CONFIG.layers * CONFIG.experts
    assert weights.bytes == 4 * weights.values


def test_a_folder_of_another_kind_or_with_missing_parts_is_refused(model, tmp_path):
    written(model, tmp_path)
    told = json.loads((tmp_path / "config.json").read_text())
    with pytest.raises(ExportError, match="model_type 'llama'"):
        config_from_folder(told | {"model_type": "llama"})
    with pytest.raises(ExportError, match="marin_schema 2"):
        config_from_folder(told | {"marin_schema": 2})
    with pytest.raises(ExportError, match="lacks hidden_size"):
        config_from_folder({name: value for name, value in told.items() if name != "hidden_size"})
    stored = load_file(tmp_path / "model.safetensors")
    bias = stored.pop("model.layers.3.mlp.gate.selection_bias")
    save_file(stored, tmp_path / "model.safetensors")
    with pytest.raises(ExportError, match=r"lacks 1 tensors, such as 'model\.layers\.3\.mlp\.gate\.selection_bias'"):
        import_model(tmp_path)
    save_file(stored | {"model.layers.3.mlp.gate.selection_bias": bias[:3]}, tmp_path / "model.safetensors")
    with pytest.raises(ExportError, match=r"is \[3\] in model\.safetensors; config\.json makes it \[6\]"):
        import_model(tmp_path)
    save_file(stored | {"model.extra": bias.clone()}, tmp_path / "model.safetensors")
    with pytest.raises(ExportError, match=r"holds a tensor 'model\.extra'"):
        import_model(tmp_path)
