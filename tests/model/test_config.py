"""The shape rules and what is refused."""

import subprocess
import sys
from dataclasses import replace

import pytest

from marin.model.config import BalancingConfig, ComputeConfig, ModelConfig
from tests.model.small import SMALL


def test_hero_has_the_published_shape():
    hero = ModelConfig.hero()
    assert (hero.width, hero.layers, hero.heads, hero.head_dim) == (6144, 48, 48, 128)
    assert (hero.local_kv_heads, hero.global_kv_heads, hero.kv_heads) == (12, 6, 12)
    assert (hero.experts, hero.experts_per_token, hero.shared_experts) == (384, 8, 2)
    assert (hero.latent_width, hero.expert_width, hero.shared_width) == (3072, 3072, 3072)
    assert (hero.sequence_length, hero.window, hero.vocab_size) == (4096, 2048, 128_256)


@pytest.mark.parametrize(
    ("name", "heads", "local", "global_"), [("d768", 6, 1, 1), ("d1024", 8, 2, 1), ("d2048", 16, 4, 2)]
)
def test_rungs_follow_the_shape_rules(name: str, heads: int, local: int, global_: int):
    rung = ModelConfig.rung(name)
    assert (rung.heads, rung.local_kv_heads, rung.global_kv_heads) == (heads, local, global_)
    assert rung.latent_width == rung.expert_width == rung.shared_width == rung.width // 2


def test_every_fourth_layer_and_the_last_are_global():
    config = replace(SMALL, layers=7)
    assert [config.is_global(i) for i in range(7)] == [False, False, False, True, False, False, True]
    assert [config.kv_heads_of(i) for i in range(4)] == [2, 2, 2, 1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"local_kv_heads": 3}, ("local_kv_heads 3", "divisor")),
        ({"head_dim": 6}, ("head_dim is 6", "multiple of 4")),
        ({"experts_per_token": 6}, ("experts_per_token is 6", "lower")),
        ({"window": 0}, ("window is 0", "at least 1")),
        ({"shared_width": 0}, ("shared_width 0", "shared_experts 0")),
        ({"z_loss": -1.0}, ("z_loss is -1.0", "0 to switch it off")),
        ({"rope_theta": 1.0}, ("rope_theta 1.0", "greater than 1")),
    ],
)
def test_an_impossible_shape_names_field_value_and_way_out(changes: dict[str, float], words: tuple[str, ...]):
    with pytest.raises(ValueError) as error:
        replace(SMALL, **changes)
    assert all(word in str(error.value) for word in words), str(error.value)


def test_unknown_rungs_and_fields_are_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="d1536"):
        ModelConfig.rung("d1537")
    with pytest.raises(ValueError, match="vocab_size"):
        ModelConfig.shaped(width=64, layers=2, head_dim=16, vocabulary=100)
    with pytest.raises(ValueError, match="bins"):
        BalancingConfig(bins=1)
    with pytest.raises(ValueError, match="loss_chunk"):
        ComputeConfig(loss_chunk=0)


def test_configs_of_the_three_rooms_import_nothing_heavy():
    code = (
        "import sys, marin.model.config, marin.model.accounting, marin.parallel.config, marin.optim.config\n"
        "heavy = {'torch', 'numpy', 'ray', 'transformers'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
