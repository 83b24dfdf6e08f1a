"""What the planner says of activations and of big plans."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from marin.model.config import ModelConfig
from marin.model.packing import Packing
from marin.model.transformer import Transformer
from marin.optim.config import OptimizerConfig, OptimizerKind
from marin.parallel.activations import Activations, activations
from marin.parallel.config import OverlapConfig, ParallelPlan, Precision, Recompute
from marin.parallel.live import LiveBytes
from marin.parallel.recompute import apply_recompute
from marin.training.config import TrainingConfig
from marin.training.fit import fit_of, memory_of

pytestmark = pytest.mark.slow

F32 = torch.float32
MODEL = ModelConfig.shaped(
    width=64,
    layers=5,
    vocab_size=512,
    head_dim=16,
    experts=8,
    experts_per_token=2,
    sequence_length=128,
    window=64,
    gate_rank=8,
    global_every=3,
)


def traced(model: ModelConfig, recompute: Recompute, plan: ParallelPlan = ParallelPlan()) -> Activations:
    return activations(
        model, plan, sequences=2, dtype=torch.float32, recompute=recompute, device_type="cpu", imbalance=1.0
    )


def measured(recompute: Recompute) -> Activations:
    """Bytes of a real forward and backward pass over rows of one document each."""
    model = Transformer(MODEL)
    packings: list[Packing] = []
    model.blocks[0].register_forward_pre_hook(lambda _, arguments: packings.append(arguments[1]))
    apply_recompute(model, recompute)
    tokens = torch.randint(0, 512, (2, 128))
    positions = torch.arange(128).expand(2, 128).contiguous()
    with LiveBytes() as live:
        loss = model(tokens, torch.zeros_like(tokens).int(), positions, tokens).total_sum
        # Masks that all layers share are no part of what a layer keeps.
        masks = sum(
            block.bias_B1QK.nbytes for window in (None, 64) for block in packings[0].query_blocks(window, 64, F32)
        )
        kept = live.now - masks
        torch.autograd.backward(loss)
    return Activations(kept, live.peak - masks)


@pytest.mark.parametrize("recompute", Recompute)
def test_traced_activations_are_those_of_a_real_pass(recompute: Recompute):
    real, told = measured(recompute), traced(MODEL, recompute)
    print(f"{recompute.value}: kept {real.kept} bytes, {told.kept} told; peak {real.peak}, {told.peak} told")
    assert told.kept == pytest.approx(real.kept, rel=0.05)
    gradients = 4 * sum(p.numel() for p in Transformer(MODEL).parameters())
    assert real.peak - gradients < told.peak <= 1.05 * real.peak


def test_depths_extrapolate_and_an_exchange_adds_the_rows_that_it_brought():
    kept = [traced(replace(MODEL, layers=layers, global_every=100), Recompute.FULL).kept for layers in (3, 4, 9)]
    assert kept[2] - kept[0] == 6 * (kept[1] - kept[0])
    alone, divided = traced(MODEL, Recompute.FULL), traced(MODEL, Recompute.FULL, ParallelPlan(dp_shard=4, ep=4))
    rows = 2 * MODEL.sequence_length * MODEL.experts_per_token * MODEL.latent_width * 4
    assert divided.kept - alone.kept >= MODEL.layers * 2 * rows


def training(**fields: object) -> TrainingConfig:
    values: dict[str, object] = {
        "steps": 1,
        "batch_sequences": 8,
        "optimizer": OptimizerConfig(learning_rate=1e-3, kind=OptimizerKind.ADAMW),
        "parallel": ParallelPlan(dp_shard=4, ep=2),
        "micro_batch_sequences": 1,
    }
    return TrainingConfig(**(values | fields))  # type: ignore[arg-type]


def test_settings_move_the_bytes_that_they_should():
    plain = memory_of(MODEL, training(), ranks=4)
    assert plain.optimizer == pytest.approx(2 * plain.weights, rel=1e-3)
    assert plain.weights == pytest.approx(plain.even_weights, rel=1e-2)

    on_host = memory_of(MODEL, training(optimizer_on_host=True), ranks=4)
    assert (on_host.optimizer, on_host.optimizer_on_host) == (0, plain.optimizer)
    every = memory_of(MODEL, training(overlap=OverlapConfig(reduce_every_micro_batch=True)), ranks=4)
    # Between micro-batches the gradients of half of the experts and of all else lie here in fp32.
    assert plain.reduced - every.reduced > 3 * plain.weights
    wide = memory_of(MODEL, training(precision=Precision.FP32), ranks=4)
    assert wide.gathered > 1.8 * plain.gathered
    crowded = memory_of(MODEL, training(), ranks=4, imbalance=2.0)
    assert crowded.activations.kept > plain.activations.kept


def test_gradients_are_held_between_micro_batches_while_the_card_has_eight_times_their_bytes():
    overlap = OverlapConfig()
    assert not overlap.reduces_every(10, None)
    assert not overlap.reduces_every(10, 80)
    assert overlap.reduces_every(10, 79)
    assert not OverlapConfig(reduce_every_micro_batch=False).reduces_every(10, 1)


def test_the_verdict_is_about_nine_tenths_of_the_card():
    fit = fit_of(MODEL, training(), ranks=4, accelerator="H100")
    assert fit.fits
    assert fit.headroom_bytes == 72 * 10**9 - fit.memory.peak
    assert fit_of(MODEL, training(), ranks=4, accelerator=None, memory_gb=fit.memory.peak / 1e9).fits is False
    assert fit_of(MODEL, training(), ranks=4, accelerator="unheard-of").fits is None
    with pytest.raises(ValueError, match="nearest that fit"):
        memory_of(MODEL, training(), ranks=6)


def test_the_hero_is_planned_within_a_minute_and_two_gibibytes():
    program = (
        "import json, time; started = time.process_time()\n"
        "from marin.recipes import scale_named; from marin.training.fit import fit_of\n"
        "scale = scale_named('hero')\n"
        "fit = fit_of(scale.model, scale.training, ranks=704, accelerator='GB200')\n"
        # ru_maxrss of a program begins at that of the process which started it.
        "status = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
        "peak = int(status['VmHWM'].split()[0]) * 1024\n"
        "print(json.dumps([fit.memory.weights, fit.fits, time.process_time() - started, peak]))"
    )
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    weights, fits, seconds, resident = json.loads(done.stdout)
    assert weights == pytest.approx(535_477_106_688 * 4 / 64, rel=1e-3)
    assert fits
    assert seconds < 60
    assert resident < 2 << 30
