"""One training step against Hugging Face transformers' Qwen3-MoE: JSON lines, tokens a CPU second, one thread, fp32.

    python operations/bench/train_step.py [--sizes a b c] [--rounds 7] [--features] [--exchange]

Both sides have equal weights, equal tokens and fused AdamW. What the peer lacks is switched off on our side, and what
it has is matched (`as_peer`); the layout of rotated channels differs, so weights are permuted on the way over. Before
anything is timed the loss and every parameter's gradient must agree to 1e-4 (relative norm). The peer runs with the
fastest of its expert and attention implementations, found by trying each. Rounds are interleaved, ours and the peer's
in turn; medians count. The matmul peak is measured in every round on cubes of 512 to 1024.

Shares of the peak count the FLOPs that the model needs: 6 a weight that a token is multiplied with, and attention over
the keys that it can see.

`--features` prints what each part of the full block costs: the step of the full recipe with MuonH, then without one
part at a time. `--exchange` starts two gloo processes and prints the bytes of one step beside the least that the plan
needs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch import Tensor, nn

from marin.model.accounting import active_parameters
from marin.model.config import Balancing, BalancingConfig, ModelConfig
from marin.model.features import CombineWeights, Features
from marin.model.transformer import Transformer

GRADIENT_TOLERANCE = 1e-4
GOAL = 1.3
MOST_BYTES = 4 << 30
"""An implementation that keeps more than this for the backward pass is not tried."""


@dataclass(frozen=True)
class Size:
    """One comparison: the shape as the peer can have it, and a batch."""

    model: ModelConfig
    batch: int
    goal_share: float
    """Share of the matmul peak that ours should reach."""


def as_peer(*, width: int, experts: int, chosen: int, expert_width: int, vocab: int, length: int) -> ModelConfig:
    """Qwen3-MoE in our terms: every layer global and rotated in full, softmax weights, gains on queries and keys."""
    return ModelConfig(
        vocab_size=vocab,
        width=width,
        layers=4,
        heads=4,
        head_dim=width // 4,
        local_kv_heads=2,
        global_kv_heads=2,
        experts=experts,
        experts_per_token=chosen,
        latent_width=width,
        expert_width=expert_width,
        shared_experts=0,
        shared_width=0,
        sequence_length=length,
        window=length,
        global_every=1,
        query_scale=1.0,
        routing_scale=1.0,
        norm_eps=1e-6,
        z_loss=0.0,
        balancing=BalancingConfig(kind=Balancing.NONE),
        features=Features(
            gated_norm=False,
            embedding_norm=False,
            short_convolution=False,
            query_key_gain=True,
            rotary_share=1.0,
            global_positions=True,
            exclusive_attention=False,
            head_gate=False,
            latent_projection=False,
            combine_weights=CombineWeights.SOFTMAX,
        ),
    )


SIZES = {
    "a": Size(as_peer(width=256, experts=8, chosen=2, expert_width=512, vocab=8192, length=512), 4, 0.55),
    "b": Size(as_peer(width=256, experts=64, chosen=8, expert_width=128, vocab=8192, length=512), 4, 0.50),
    "c": Size(as_peer(width=128, experts=16, chosen=2, expert_width=64, vocab=4096, length=256), 8, 0.38),
}


def flops_per_token(model: ModelConfig) -> float:
    """Forward and backward, attention over the visible keys only."""
    visible = 0.0
    for layer in range(model.layers):
        length = model.sequence_length
        window = length if model.is_global(layer) else min(model.window, length)
        visible += (window * (window + 1) / 2 + (length - window) * window) / length
    matrices = active_parameters(model) + model.vocab_size * model.width
    return 6 * matrices + 12 * model.heads * model.head_dim * visible


def matmul_peak(seconds: float = 0.25) -> float:
    """FLOPs a CPU second of the fastest of three fp32 products of cubes."""
    best = 0.0
    for n in (512, 768, 1024):
        a, b = torch.randn(n, n), torch.randn(n, n)
        out = a @ b
        done, began = 0, time.process_time()
        while (spent := time.process_time() - began) < seconds / 3:
            torch.mm(a, b, out=out)
            done += 1
        best = max(best, 2 * n**3 * done / spent)
    return best


class Ours:
    """Our step on a fixed batch."""

    def __init__(self, model: Transformer, tokens_BT: Tensor, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.tokens_BT, self.optimizer = model, tokens_BT, optimizer
        self.segments_BT = torch.zeros_like(tokens_BT)
        self.positions_BT = torch.arange(tokens_BT.shape[1]).expand_as(tokens_BT).contiguous()
        self.targets_BT = tokens_BT.roll(-1, 1)
        self.mask_BT = torch.ones_like(tokens_BT, dtype=torch.bool)
        self.mask_BT[:, -1] = False

    def gradients(self) -> float:
        """Forward and backward; the mean loss."""
        sums = self.model(self.tokens_BT, self.segments_BT, self.positions_BT, self.targets_BT, self.mask_BT)
        loss = sums.total_sum / sums.token_count
        loss.backward()
        return float(loss.detach())

    def step(self) -> None:
        """One training step."""
        self.gradients()
        self.optimizer.step()
        self.model.update_router_bias()
        self.optimizer.zero_grad()


class Peer:
    """The peer's step on the same batch."""

    def __init__(self, model: nn.Module, tokens_BT: Tensor, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.tokens_BT, self.optimizer = model, tokens_BT, optimizer

    def gradients(self) -> float:
        """Forward and backward; the mean loss."""
        loss: Tensor = self.model(input_ids=self.tokens_BT, labels=self.tokens_BT, use_cache=False).loss
        loss.backward()
        return float(loss.detach())

    def step(self) -> None:
        """One training step."""
        self.gradients()
        self.optimizer.step()
        self.optimizer.zero_grad()


def peer_model(model: ModelConfig) -> Any:
    """Qwen3-MoE of the same shape, with random weights."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    config = Qwen3MoeConfig(
        vocab_size=model.vocab_size,
        hidden_size=model.width,
        intermediate_size=model.expert_width,
        num_hidden_layers=model.layers,
        num_attention_heads=model.heads,
        num_key_value_heads=model.global_kv_heads,
        head_dim=model.head_dim,
        max_position_embeddings=model.sequence_length,
        rms_norm_eps=model.norm_eps,
        rope_parameters={"rope_type": "default", "rope_theta": model.rope_theta},
        moe_intermediate_size=model.expert_width,
        num_experts=model.experts,
        num_experts_per_tok=model.experts_per_token,
        norm_topk_prob=True,
        use_cache=False,
    )
    torch.manual_seed(0)
    return Qwen3MoeForCausalLM(config).train()


def halves_to_pairs(x: Tensor, channels: int) -> Tensor:
    """Rows of each head from the peer's layout (channel j turns with j + C/2) to ours (2j turns with 2j + 1)."""
    return x.unflatten(0, (-1, 2, channels // 2)).transpose(1, 2).flatten(0, 2)


def in_our_layout(of_peer: dict[str, Tensor], model: ModelConfig) -> dict[str, Tensor]:
    """The peer's weights, or their gradients, under our names and in our layout."""
    found = {
        "embedding.weight": of_peer["model.embed_tokens.weight"],
        "output_norm.gain": of_peer["model.norm.weight"],
        "head.weight": of_peer["lm_head.weight"],
    }
    for layer in range(model.layers):
        theirs, ours = f"model.layers.{layer}", f"blocks.{layer}"
        for kind in ("query", "key"):
            projection = of_peer[f"{theirs}.self_attn.{kind[0]}_proj.weight"]
            gain = of_peer[f"{theirs}.self_attn.{kind[0]}_norm.weight"]
            found[f"{ours}.attention.{kind}"] = halves_to_pairs(projection, model.head_dim)
            found[f"{ours}.attention.{kind}_gain"] = halves_to_pairs(gain, model.head_dim)
        found |= {
            f"{ours}.attention_norm.gain": of_peer[f"{theirs}.input_layernorm.weight"],
            f"{ours}.attention.value": of_peer[f"{theirs}.self_attn.v_proj.weight"],
            f"{ours}.attention.output": of_peer[f"{theirs}.self_attn.o_proj.weight"],
            f"{ours}.moe_norm.gain": of_peer[f"{theirs}.post_attention_layernorm.weight"],
            f"{ours}.moe.router.weight": of_peer[f"{theirs}.mlp.gate.weight"],
            f"{ours}.moe.experts.gate_up": of_peer[f"{theirs}.mlp.experts.gate_up_proj"],
            f"{ours}.moe.experts.down": of_peer[f"{theirs}.mlp.experts.down_proj"].transpose(1, 2),
        }
    return found


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    """The same optimizer for both."""
    return torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0, fused=True)


def pair(size: Size) -> tuple[Ours, Peer]:
    """Both sides with equal weights and the same batch."""
    model = size.model
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, model.vocab_size, (size.batch, model.sequence_length), generator=generator)
    theirs = peer_model(model)
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            # Gains of exactly one would hide a permuted channel.
            if name.endswith("norm.weight"):
                parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    ours = Transformer(model).train()
    weights = in_our_layout({name: p.detach() for name, p in theirs.named_parameters()}, model)
    missing = ours.load_state_dict(weights, strict=False)
    learned = {name for name, _ in ours.named_parameters()}
    if missing.unexpected_keys or learned & set(missing.missing_keys):
        raise SystemExit(f"the two models differ in their parameters: {missing}")
    return Ours(ours, tokens, adamw(ours)), Peer(theirs, tokens, adamw(theirs))


def check_equal(ours: Ours, peer: Peer, model: ModelConfig) -> float:
    """The largest relative difference of a parameter's gradient; ends the program when it is too large."""
    our_loss, peer_loss = ours.gradients(), peer.gradients()
    gradients = {name: p.grad for name, p in peer.model.named_parameters() if p.grad is not None}
    expected = in_our_layout(gradients, model)
    worst, where = abs(our_loss - peer_loss) / abs(peer_loss), "the loss"
    for name, parameter in ours.model.named_parameters():
        assert parameter.grad is not None
        difference = float((parameter.grad - expected[name]).norm() / expected[name].norm())
        if not difference <= worst:
            worst, where = difference, name
    if not worst <= GRADIENT_TOLERANCE:
        raise SystemExit(f"the sides differ by {worst:.1e} at {where}; at most {GRADIENT_TOLERANCE} is allowed")
    ours.model.update_router_bias()
    ours.optimizer.zero_grad()
    peer.optimizer.zero_grad()
    return worst


def spent(run: Callable[[], object]) -> float:
    """CPU seconds of one call."""
    began = time.process_time()
    run()
    return time.process_time() - began


def choose_fastest(peer: Peer, model: ModelConfig, rounds: int = 2) -> tuple[str, dict[str, float]]:
    """Leave the peer with its fastest implementation; its name, and CPU seconds of each that was tried."""
    found: dict[str, float] = {}
    # batched_mm copies every expert's matrices for each of its rows.
    copies = 4 * peer.tokens_BT.numel() * model.experts_per_token * 3 * model.expert_width * model.width * model.layers
    for experts in ("eager", "grouped_mm", *(["batched_mm"] if copies <= MOST_BYTES else [])):
        for attention in ("sdpa", "eager"):
            peer.model.set_experts_implementation(experts)
            peer.model.set_attn_implementation(attention)
            first = spent(peer.gradients)
            if found and first > 5 * min(found.values()):
                found[f"{experts}+{attention}"] = first
            else:
                found[f"{experts}+{attention}"] = min(spent(peer.gradients) for _ in range(rounds))
            peer.optimizer.zero_grad()
    best = min(found, key=found.__getitem__)
    experts, attention = best.split("+")
    peer.model.set_experts_implementation(experts)
    peer.model.set_attn_implementation(attention)
    return best, found


def compare(name: str, size: Size, rounds: int) -> dict[str, Any]:
    """The row of one size."""
    import transformers

    ours, peer = pair(size)
    worst = check_equal(ours, peer, size.model)
    best, tried = choose_fastest(peer, size.model)
    for side in (ours, peer):
        side.step()
    times: dict[str, list[float]] = {"ours": [], "peer": []}
    peaks = []
    for _ in range(rounds):
        times["ours"].append(spent(ours.step))
        times["peer"].append(spent(peer.step))
        peaks.append(matmul_peak())
    tokens = ours.tokens_BT.numel()
    peak = statistics.median(peaks)
    ours_s, peer_s = statistics.median(times["ours"]), statistics.median(times["peer"])
    work = flops_per_token(size.model) * tokens
    return {
        "name": f"train_step_{name}",
        "ours": round(tokens / ours_s, 1),
        "peer": round(tokens / peer_s, 1),
        "ratio": round(statistics.median(p / o for o, p in zip(times["ours"], times["peer"], strict=True)), 3),
        "unit": "tokens/CPU-s",
        "input": f"{size.batch} x {size.model.sequence_length} tokens, fp32, AdamW, one thread, {rounds} rounds",
        "goal": GOAL,
        "share_of_peak": round(work / ours_s / peak, 3),
        "peer_share_of_peak": round(work / peer_s / peak, 3),
        "goal_share": size.goal_share,
        "peak_gflops": round(peak / 1e9, 1),
        "spread": {side: [round(min(t), 3), round(max(t), 3)] for side, t in times.items()},
        "worst_gradient_difference": float(f"{worst:.1e}"),
        "peer_implementation": best,
        "peer_tried_s": {what: round(s, 3) for what, s in tried.items()},
        "peer_version": f"transformers {transformers.__version__}, torch {torch.__version__}",
    }


def rows(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All rows that were asked for."""
    for name in args.sizes:
        yield compare(name, SIZES[name], args.rounds)


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="*", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(1)
    for row in rows(args):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
