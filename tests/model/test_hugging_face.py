"""The model in the manner of Hugging Face: names, masks, storage, and that it is the same model."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from marin.model import MarinConfig, MarinForCausalLM, MarinModel
from marin.model.config import ModelConfig
from marin.model.hugging_face.naming import CONFIG_NAMES, ExportError
from tests.docs.pages import ROOT, python_of
from tests.model.small import SMALL, lively, packed

SMALL_HF = MarinConfig.of(SMALL)


def causal(config: MarinConfig = SMALL_HF) -> MarinForCausalLM:
    model = MarinForCausalLM(config).double()
    model.transformer.load_state_dict(lively().state_dict())
    return model.eval()


def test_hidden_states_of_a_config_in_hugging_faces_words():
    config = MarinConfig(
        vocab_size=50257,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=2048,
        num_experts=16,
    )
    output = MarinModel(config)(torch.randint(0, 50257, (2, 16)))
    assert output.last_hidden_state.shape == (2, 16, 128)
    assert (config.head_dim, config.num_key_value_heads, config.sliding_window) == (32, 1, 1024)
    assert (config.num_local_experts, config.dropout) == (16, 0.0)


def test_the_snippet_of_the_page_works():
    names = python_of(ROOT / "docs" / "stages" / "model.md")
    assert names["states"].shape == (2, 16, 128)
    assert names["config"].model_config.experts == 384


def test_hidden_states_and_logits_are_those_of_the_transformer():
    model, batch = causal(), packed(batch=1)
    tokens = batch["tokens_BT"]
    segments, positions = torch.zeros_like(tokens), torch.arange(tokens.shape[1])[None]
    headless = MarinModel(SMALL_HF).double().eval()
    missing = headless.transformer.load_state_dict(model.transformer.state_dict(), strict=False)
    assert missing.unexpected_keys == ["head.weight"]
    states = headless(tokens).last_hidden_state
    assert torch.equal(states, model.transformer.states(tokens, segments, positions))
    assert torch.equal(model(tokens).logits, model.transformer(tokens, segments, positions))
    torch.testing.assert_close(model(tokens).logits, states @ model.transformer.head.weight.T)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_on_either_side_changes_no_real_token(side: str):
    model = causal()
    tokens = packed(batch=1, length=10)["tokens_BT"]
    padding = torch.full((1, 4), 5)
    given = [padding, tokens] if side == "left" else [tokens, padding]
    mask = torch.cat([torch.full_like(x, x is tokens) for x in given], 1)
    real = slice(4, None) if side == "left" else slice(0, 10)
    padded = torch.cat(given, 1)
    torch.testing.assert_close(model(padded, attention_mask=mask).logits[:, real], model(tokens).logits)
    a, b = model(padded, attention_mask=mask, labels=padded), model(tokens, labels=tokens)
    torch.testing.assert_close(a.loss, b.loss)


def test_the_loss_is_the_mean_over_next_tokens_of_the_same_document():
    model = causal()
    first, second = packed(batch=1, length=6)["tokens_BT"], packed(batch=1, length=8, seed=1)["tokens_BT"]
    both = torch.cat([first, second], 1)
    positions = torch.cat([torch.arange(6), torch.arange(8)])[None]
    labels = both.clone()
    labels[0, 2] = -100
    logits = [model(tokens).logits[0, :-1] for tokens in (first, second)]
    asked = torch.cat(logits), torch.cat([first[0, 1:], second[0, 1:]])
    counted = torch.arange(12) != 1
    partition = torch.logsumexp(asked[0], 1)
    each = partition - asked[0].gather(1, asked[1][:, None])[:, 0] + SMALL.z_loss * partition**2
    found = model(both, position_ids=positions, labels=labels)
    torch.testing.assert_close(found.loss, each[counted].mean())
    assert found.logits is None


def test_a_saved_model_is_read_back_by_both_classes_and_by_the_export(tmp_path):
    from marin.model.hugging_face.folder import import_model

    model, tokens = causal(), packed(batch=2)["tokens_BT"]
    model.save_pretrained(tmp_path / "whole")
    again = MarinForCausalLM.from_pretrained(tmp_path / "whole")
    assert again.config == model.config
    assert torch.equal(again(tokens).logits, model(tokens).logits)
    headless = MarinModel.from_pretrained(tmp_path / "whole")
    states = headless(tokens).last_hidden_state
    headless.save_pretrained(tmp_path / "headless")
    assert torch.equal(MarinModel.from_pretrained(tmp_path / "headless")(tokens).last_hidden_state, states)
    with pytest.raises(ExportError, match=r"lacks 1 tensors, such as 'lm_head\.weight'"):
        MarinForCausalLM.from_pretrained(tmp_path / "headless")
    imported = import_model(tmp_path / "whole").state_dict()
    # The range of the balancing histogram is the next training step's affair and is not stored.
    for name, tensor in model.transformer.state_dict().items():
        assert name.endswith("margin_range") or torch.equal(imported[name], tensor), name


def test_the_default_configuration_is_the_smallest_published_rung():
    assert MarinConfig().model_config == ModelConfig.rung("d768")


def test_every_configuration_comes_back_from_its_json():
    for model in (SMALL, ModelConfig.hero(), replace(SMALL, dropout=0.1)):
        config = MarinConfig.of(model)
        assert config.model_config == model
        assert MarinConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    assert all(hasattr(SMALL_HF, name) for name in CONFIG_NAMES.values())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; this architecture has it as 'silu'"),
        ({"attention_dropout": 0.1}, "dropout acts on the stream"),
        ({"num_experts": 8, "num_local_experts": 16}, "num_experts is 8 and num_local_experts 16; they are one field"),
        ({"hidden_size": 100, "num_attention_heads": 3}, "hidden_size 100 is not a multiple of num_attention_heads 3"),
        ({"dropout": 1.0}, "dropout is 1.0; give a share"),
    ],
)
def test_what_the_architecture_cannot_be_is_refused(given, words):
    with pytest.raises(ValueError) as error:
        MarinConfig(**given)
    assert words in str(error.value)


def test_masks_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"attention_mask is \[1, 3\] and input_ids \[1, 4\]"):
        causal()(torch.zeros(1, 4, dtype=torch.long), attention_mask=torch.ones(1, 3))


def test_dropout_acts_in_training_only_and_repeats_with_the_seed():
    model = MarinForCausalLM(MarinConfig.of(replace(SMALL, dropout=0.5)))
    tokens = packed()["tokens_BT"]
    assert torch.equal(model.eval()(tokens).logits, model(tokens).logits)
    model.train()

    def trained(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return model(tokens).logits

    assert torch.equal(trained(1), trained(1))
    assert not torch.equal(trained(1), trained(2))


def test_the_room_and_its_config_import_no_torch():
    code = (
        "import sys, marin.model; marin.model.MarinConfig\n"
        "heavy = {'torch', 'transformers', 'safetensors', 'numpy'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_mask_with_a_hole_and_odd_values_are_refused_by_name() -> None:
    config = MarinConfig(
        vocab_size=50, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, num_experts=4, num_experts_per_tok=2
    )
    ids = torch.randint(0, 50, (1, 6))
    model = MarinModel(config)
    with pytest.raises(ValueError, match="mask padding at the sides only"):
        model(ids, attention_mask=torch.tensor([[1, 1, 0, 1, 1, 1]]))
    assert model(ids, attention_mask=torch.tensor([[0, 1, 1, 1, 1, 0]])).last_hidden_state.shape == (1, 6, 32)
    with pytest.raises(ValueError, match="without a token"):
        model.transformer(ids[:0], ids[:0], ids[:0])
    with pytest.raises(ValueError, match=r"input_ids is \[6\]; give \[batch, sequence\]"):
        model(ids[0])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_attention_heads", 0),
        ("hidden_size", 0),
        ("head_dim", 0),
        ("vocab_size", "50"),
        ("vocab_size", 50.5),
        ("router_balancing", {"kind": "none"}),
        ("tie_word_embeddings", "no"),
        ("num_hidden_layers", True),
        ("rope_theta", float("nan")),
        ("query_scale", float("inf")),
    ],
)
def test_a_field_of_a_wrong_kind_is_named(field: str, value: object) -> None:
    ours = {
        "num_attention_heads": "num_attention_heads|heads",
        "vocab_size": "vocab_size",
        "num_hidden_layers": "layers",
    }
    with pytest.raises(ValueError, match=ours.get(field, field)):
        MarinConfig(**{"hidden_size": 64, "num_attention_heads": 4, field: value})
