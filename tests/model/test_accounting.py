"""The published figures of every rung."""

import pytest

from marin.model.accounting import active_parameters, flops_per_token, rung_steps, total_parameters
from marin.model.config import ModelConfig

# name: total, active, batch, steps, FLOPs of the run (published to two digits)
TABLE = {
    "d768": (1_591_848_448, 60_555_264, 1024, 11_420, 5.5e19),
    "d1024": (3_980_116_480, 162_004_992, 2048, 15_276, 2.7e20),
    "d1536": (11_534_398_464, 481_296_384, 6144, 15_128, 1.8e21),
    "d2048": (27_742_902_528, 1_170_735_104, 11_264, 20_072, 9.3e21),
    "hero": (535_477_106_688, 22_762_487_808, 11_264, 390_251, 2.7e24),
}


@pytest.mark.parametrize("name", TABLE)
def test_published_parameters_steps_and_flops(name: str):
    total, active, batch, steps, flops = TABLE[name]
    model = ModelConfig.rung(name)
    assert total_parameters(model) == total
    assert active_parameters(model) == active
    assert rung_steps(model, batch) == steps
    run = flops_per_token(model) * steps * batch * 4096
    assert float(f"{run:.1e}") == pytest.approx(flops, rel=0.02)


def test_flops_of_one_token_of_the_hero():
    assert flops_per_token(ModelConfig.hero()) == 150_362_652_672


def test_a_batch_of_nothing_is_refused():
    with pytest.raises(ValueError, match="batch is 0"):
        rung_steps(ModelConfig.hero(), 0)
