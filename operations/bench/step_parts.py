"""What each part of the full block costs in a training step, and what a step sends between two ranks: JSON lines.

    python operations/bench/step_parts.py [--sizes a b c] [--rounds 5]
    python operations/bench/step_parts.py --exchange

The first form takes the sizes of `train_step.py` with everything that specs/model.md adds (latent and expert width,
shared experts and window by the ladder's rules) and MuonH, on one thread in fp32, and takes one part away at a time.
`ms` is what the step with the part takes longer, the median over rounds in which both take turns; `share` is of the
full step. A negative figure says that the part saves time: experts in half of the width, keys that a window hides.

The second form starts two gloo processes for each plan and counts the bytes of a step; `peer` is the least that the
plan needs. Rank by rank the assignments that leave differ, so both are means over ranks.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from train_step import SIZES, Ours, Size, flops_per_token, spent

from marin.model.accounting import total_parameters
from marin.model.config import Balancing, BalancingConfig, ModelConfig
from marin.model.features import CombineWeights
from marin.model.transformer import Transformer
from marin.optim.build import build_optimizer
from marin.optim.config import OptimizerConfig, OptimizerKind
from marin.parallel.build import build_model
from marin.parallel.config import ParallelPlan
from marin.parallel.meshes import build_meshes
from marin.parallel.traffic import CountedTraffic, Traffic, least_traffic

PLANS = (ParallelPlan(dp_shard=2), ParallelPlan(dp_shard=2, ep=2), ParallelPlan(dp_replicate=2))
COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")


def full(size: Size) -> ModelConfig:
    """The size with the block of the recipe; its gates have an eighth of the width as rank."""
    plain = size.model
    return ModelConfig.shaped(
        width=plain.width,
        layers=plain.layers,
        head_dim=plain.head_dim,
        vocab_size=plain.vocab_size,
        experts=plain.experts,
        experts_per_token=plain.experts_per_token,
        expert_width=plain.expert_width,
        sequence_length=plain.sequence_length,
        gate_rank=plain.width // 8,
    )


def without(model: ModelConfig) -> dict[str, ModelConfig]:
    """The model with one part less, by the part's name."""

    def switched(**features: Any) -> ModelConfig:
        return replace(model, features=replace(model.features, **features))

    whole_width = replace(model.features, latent_projection=False)
    return {
        "gates after norms": switched(gated_norm=False),
        "norm of embeddings": switched(embedding_norm=False),
        "short convolutions": switched(short_convolution=False),
        "rotation by position": switched(rotary_share=0.0),
        "exclusive attention": switched(exclusive_attention=False),
        "gates of heads": switched(head_gate=False),
        "exclusive attention and gates of heads": switched(exclusive_attention=False, head_gate=False),
        "sliding window": replace(model, global_every=1),
        "latent width": replace(model, features=whole_width, latent_width=model.width),
        "shared experts": replace(model, shared_experts=0),
        "sigmoid combine weights": switched(combine_weights=CombineWeights.SOFTMAX),
        "quantile balancing": replace(model, balancing=BalancingConfig(kind=Balancing.NONE)),
        "z-loss": replace(model, z_loss=0.0),
    }


def step_of(model: ModelConfig, batch: int, optimizer: OptimizerKind) -> Callable[[], None]:
    """A training step on a random batch."""
    made = Transformer(model).train()
    config = OptimizerConfig(learning_rate=1e-3, kind=optimizer)
    tokens = torch.randint(0, model.vocab_size, (batch, model.sequence_length))
    ours = Ours(made, tokens, build_optimizer(made, config))
    ours.step()
    return ours.step


def parts(name: str, size: Size, rounds: int) -> Iterator[dict[str, Any]]:
    """The full step's row, then one for each part."""
    model = full(size)
    whole = step_of(model, size.batch, OptimizerKind.MUONH)
    tokens = size.batch * model.sequence_length
    given = f"{size.batch} x {model.sequence_length} tokens, fp32, one thread, {rounds} rounds"
    others: dict[str, Callable[[], Callable[[], None]]] = {
        part: lambda less=less: step_of(less, size.batch, OptimizerKind.MUONH)  # type: ignore[misc]  # mypy cannot infer it
        for part, less in without(model).items()
    }
    others["MuonH instead of AdamW"] = lambda: step_of(model, size.batch, OptimizerKind.ADAMW)
    times: list[float] = []
    found = []
    for part, make in others.items():
        other = make()
        pairs = [(spent(whole), spent(other)) for _ in range(rounds)]
        times += [with_it for with_it, _ in pairs]
        found.append((part, statistics.median(a - b for a, b in pairs), statistics.median(a for a, _ in pairs)))
    step = statistics.median(times)
    yield {
        "name": f"step_full_{name}",
        "ours": round(tokens / step, 1),
        "unit": "tokens/CPU-s",
        "input": given,
        "ms": round(1e3 * step, 1),
        "parameters": total_parameters(model),
        "mflop_per_token": round(flops_per_token(model) / 1e6, 1),
    }
    for part, seconds, beside in found:
        yield {
            "name": f"step_part_{name}",
            "part": part,
            "ms": round(1e3 * seconds, 1),
            "share": round(seconds / beside, 3),
            "input": given,
        }


def exchange(size: Size) -> Iterator[dict[str, Any]]:
    """A row for each plan on two ranks."""
    for plan in PLANS:
        sent, leaving = zip(*_on_two_ranks(full(size), plan, size.batch), strict=True)
        model = full(size)
        rows = size.batch * model.sequence_length * model.experts_per_token * model.layers
        least = least_traffic(
            model,
            plan,
            tokens=size.batch * model.sequence_length // 2,
            leaving=sum(leaving) / rows,
        )
        for kind in COLLECTIVES:
            if needed := getattr(least, kind):
                mean = sum(getattr(traffic, kind) for traffic in sent) / 2
                yield {
                    "name": "step_bytes",
                    "plan": f"dp_replicate {plan.dp_replicate}, dp_shard {plan.dp_shard}, ep {plan.ep}",
                    "collective": kind,
                    "ours": round(mean),
                    "peer": round(needed),
                    "ratio": round(needed / mean, 4),
                    "unit": "bytes a rank sends a step",
                    "input": f"{size.batch} x {model.sequence_length} tokens on two gloo ranks, fp32",
                }


def _on_two_ranks(model: ModelConfig, plan: ParallelPlan, batch: int) -> list[tuple[Traffic, int]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    answers = multiprocessing.get_context("spawn").SimpleQueue()
    multiprocessing.spawn(_rank, args=(port, answers, model, plan, batch), nprocs=2)
    return [answers.get() for _ in range(2)]


def _rank(rank: int, port: int, answers: Any, config: ModelConfig, plan: ParallelPlan, batch: int) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    try:
        model = build_model(config, meshes=build_meshes(plan), seed=0)
        leaving = 0

        def note(_module: Any, _given: Any, routing: Any) -> None:
            nonlocal leaving
            here = rank % plan.ep
            leaving += int((routing.experts_NK // (config.experts // plan.ep) != here).sum())

        for router in model.routers():
            router.register_forward_hook(note)
        torch.manual_seed(rank)
        tokens = torch.randint(0, config.vocab_size, (batch // 2, config.sequence_length))
        step = Ours(model, tokens, torch.optim.SGD(model.parameters()))
        with CountedTraffic() as counted:
            step.gradients()
        answers.put((counted.traffic, leaving))
    finally:
        dist.destroy_process_group()


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="*", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--exchange", action="store_true", help="bytes between two ranks instead of times")
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for name in args.sizes:
        for row in exchange(SIZES[name]) if args.exchange else parts(name, SIZES[name], args.rounds):
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
