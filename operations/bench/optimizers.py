"""MuonH against AdamW on text of the embedded corpus: JSON lines of held-out loss, and a figure.

    python experiments/exp_535b.py --scale smoke --prefix PREFIX            # once, for the token shards
    python operations/bench/optimizers.py --prefix PREFIX --runs FILE       # the runs; goes on where FILE ends
    python operations/bench/optimizers.py --runs FILE --figure FIGURE.svg   # one line that compares, and the figure

Every run has the laptop scale's model (with the tokenizer's vocabulary), the same initial weights, the same batches in
the same order and equally many tokens; warm-up over 5% and a straight decay to 5% of the peak. Each optimizer is tried
at several peak rates. AdamW is tuned further at its best rate (`beta2`, decay); MuonH takes all else from the recipe's
rule. The best of each is repeated with other initial weights and another order. One thread, fp32.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch.nn.utils import get_total_norm

from marin.execution import derive_seed
from marin.execution.records import load_record, materialise_record
from marin.model.config import ModelConfig
from marin.model.transformer import Transformer
from marin.optim.build import apply_schedule, build_optimizer
from marin.optim.config import OptimizerConfig
from marin.parallel.build import build_model
from marin.recipes.small import laptop
from marin.storage import Store, open_store
from marin.tokens.mixture.artifacts import Mixture
from marin.tokens.mixture.loader import MixtureLoader, packed_batches
from marin.tokens.shards.artifacts import TokenShards
from marin.training.config import TrainingConfig
from marin.training.tensors import on_device

ADAMW_RATES = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)
MUONH_RATES = (0.0092, 0.0184, 0.0368, 0.05)
"""Peak rates of the MuonH group, up to its cap; the Adam group has 3/13 of it, as in the recipe."""
SEEDS = (0, 1, 2)
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Run:
    """One setting; `rate` is the peak of AdamW or of the MuonH group."""

    kind: str
    rate: float
    beta2: float | None = None
    decay: float | None = None
    seed: int = 0

    def optimizer(self, training: TrainingConfig, model: ModelConfig) -> OptimizerConfig:
        """Its configuration; what is None comes from the recipe's rule or the usual constants."""
        if self.kind == "adamw":
            beta2 = 0.95 if self.beta2 is None else self.beta2
            decay = 0.1 if self.decay is None else self.decay
            return OptimizerConfig(self.rate, beta2=beta2, weight_decay=decay)
        tokens = training.steps * training.batch_sequences * model.sequence_length
        batch_tokens = training.batch_sequences * model.sequence_length
        recipe = OptimizerConfig.recipe(tokens=tokens, batch_tokens=batch_tokens, width=model.width)
        return replace(recipe, learning_rate=self.rate * 3 / 13, muonh_ratio=13 / 3)


@dataclass(frozen=True)
class Data:
    """The mixture and the held-out shards of a prefix."""

    mixture: Mixture
    heldout: dict[str, TokenShards]


def shards_of(prefix: str) -> Data:
    """The newest mixture under a prefix, and the held-out shards with its vocabulary."""
    store = open_store(prefix)
    folder = Path(prefix) / "_steps"
    newest = max(folder.glob("tokens.mixture-*.json"), key=lambda path: path.stat().st_mtime)
    mixture = _artifact(store, newest, Mixture)
    assert isinstance(mixture, Mixture)
    heldout = {}
    for path in sorted(folder.glob("tokens.shards-*.json")):
        label = json.loads(path.read_text())["label"]
        if "heldout" in label:
            shards = _artifact(store, path, TokenShards)
            assert isinstance(shards, TokenShards)
            if shards.vocab_size == mixture.vocab_size:
                heldout[label] = shards
    return Data(mixture, heldout)


def _artifact(store: Store, path: Path, kind: type) -> Any:
    return materialise_record(store, load_record(store, f"_steps/{path.name}"), kind)


def train(run: Run, data: Data, steps: int, batch: int, heldout_sequences: int) -> dict[str, Any]:
    """One run from its initial weights to its held-out loss."""
    model_config = replace(laptop().model, vocab_size=data.mixture.vocab_size)
    training = TrainingConfig(
        steps=steps, batch_sequences=batch, optimizer=OptimizerConfig(1e-3), warmup_share=0.05, seed=run.seed
    )
    loader = MixtureLoader(
        data.mixture,
        model_config.sequence_length,
        derive_seed(run.seed, "data order"),
        training.sequences,
    )
    model = build_model(model_config, seed=derive_seed(run.seed, "initial weights"))
    optimizer = build_optimizer(model, run.optimizer(training, model_config))
    losses, norms = [], []
    started = time.process_time()
    for step in range(steps):
        sums = model(*on_device(loader.batch(step * batch, batch), CPU))
        (sums.total_sum / sums.token_count).backward()
        norms.append(float(get_total_norm([p.grad for p in model.parameters() if p.grad is not None])))
        apply_schedule(optimizer, training.schedule.share(step), 1 - step / steps)
        optimizer.step()
        optimizer.zero_grad()
        model.update_router_bias()
        losses.append(float(sums.nll_sum) / int(sums.token_count))
    return {
        **asdict(run),
        "heldout": heldout_loss(model, data, heldout_sequences),
        "losses": [round(loss, 4) for loss in losses],
        "norms": [round(norm, 4) for norm in norms],
        "tokens": steps * batch * model_config.sequence_length,
        "cpu_seconds": round(time.process_time() - started, 1),
    }


@torch.no_grad()
def heldout_loss(model: Transformer, data: Data, sequences: int) -> float:
    """Nats per token over the first sequences of every held-out source, all together."""
    model.eval()
    nll = tokens = 0.0
    for shards in data.heldout.values():
        for batch in packed_batches(shards, model.config.sequence_length, 8, sequences):
            sums = model(*on_device(batch, CPU))
            nll, tokens = nll + float(sums.nll_sum), tokens + int(sums.token_count)
    return nll / tokens


def plan(done: list[dict[str, Any]]) -> Iterator[Run]:
    """What to run next, given what is done: the rates in turn, AdamW's constants at its best rate, then seeds."""
    for adamw, muonh in zip(ADAMW_RATES, (*MUONH_RATES, None), strict=True):
        yield Run("adamw", adamw)
        if muonh is not None:
            yield Run("muonh", muonh)
    best = best_of(done, "adamw")
    for beta2, decay in ((0.99, None), (None, 0.0), (None, 0.3)):
        yield replace(best, beta2=beta2, decay=decay)
    for seed in SEEDS[1:]:
        for kind in ("adamw", "muonh"):
            yield replace(best_of(done, kind), seed=seed)


def best_of(done: list[dict[str, Any]], kind: str) -> Run:
    """The setting with the lowest held-out loss at the first seed."""
    found = min(
        (line for line in done if line["kind"] == kind and line["seed"] == SEEDS[0]), key=lambda line: line["heldout"]
    )
    return Run(**{name: found[name] for name in ("kind", "rate", "beta2", "decay", "seed")})


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The runs that are done."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def go_on(path: Path, data: Data, steps: int, batch: int, heldout_sequences: int) -> None:
    """Make the runs that the file lacks, one after the other."""
    number = 0
    while True:
        done = lines_of(path)
        made = {tuple(line[name] for name in ("kind", "rate", "beta2", "decay", "seed")) for line in done}
        run = next((run for run in plan(done) if tuple(asdict(run).values()) not in made), None)
        if run is None:
            return
        line = train(run, data, steps, batch, heldout_sequences)
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        number += 1
        print(f"{run}: {line['heldout']:.4f} in {line['cpu_seconds']} CPU s", file=sys.stderr, flush=True)


def compare(done: list[dict[str, Any]]) -> dict[str, Any]:
    """The two best settings over all their seeds, as the line of a benchmark; lower losses are better."""
    losses: dict[str, list[float]] = {}
    bests = {}
    for kind in ("muonh", "adamw"):
        best = bests[kind] = best_of(done, kind)
        same = [line for line in done if all(line[n] == getattr(best, n) for n in ("kind", "rate", "beta2", "decay"))]
        losses[kind] = [line["heldout"] for line in sorted(same, key=lambda line: line["seed"])]
    ours, peer = statistics.mean(losses["muonh"]), statistics.mean(losses["adamw"])
    return {
        "name": "optimizers",
        "ours": round(ours, 4),
        "peer": round(peer, 4),
        "ratio": round(peer / ours, 4),
        "unit": "nats per held-out token",
        "input": f"embedded corpus, {done[0]['tokens']} tokens, {len(losses['muonh'])} seeds",
        "by_seed": losses,
        "settings": {kind: asdict(best) for kind, best in bests.items()},
        "cpu_seconds": {k: statistics.median(li["cpu_seconds"] for li in done if li["kind"] == k) for k in losses},
    }


def draw(done: list[dict[str, Any]], path: Path) -> None:
    """Held-out loss by peak rate, and the training losses of the two best settings."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    rates, curves = figure.subplots(1, 2)
    for kind, name, colour in (("adamw", "AdamW", "#1f77b4"), ("muonh", "MuonH", "#d62728")):
        swept = sorted(
            (line["rate"], line["heldout"])
            for line in done
            if line["kind"] == kind and line["seed"] == 0 and line["beta2"] is None and line["decay"] is None
        )
        rates.plot(*zip(*swept, strict=True), "o-", color=colour, label=name)
        best = best_of(done, kind)
        (line,) = (li for li in done if all(li[n] == value for n, value in asdict(best).items()))
        smooth = [statistics.mean(line["losses"][max(0, s - 4) : s + 1]) for s in range(len(line["losses"]))]
        curves.plot(smooth, color=colour, label=f"{name}, rate {best.rate:g}")
    for line in done:
        if line["kind"] == "adamw" and (line["beta2"] is not None or line["decay"] is not None) and line["seed"] == 0:
            rates.plot(line["rate"], line["heldout"], "x", color="#1f77b4")
    rates.set(xscale="log", xlabel="peak learning rate", ylabel="held-out loss, nats per token")
    curves.set(xlabel="step", ylabel="training loss (mean of 5 steps)")
    for axes in (rates, curves):
        axes.legend()
        axes.grid(alpha=0.3)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prefix", help="where a graph has made token shards; without it nothing is trained")
    parser.add_argument("--runs", type=Path, required=True, help="file of JSON lines, one a run")
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--batch", type=int, default=8, help="sequences")
    parser.add_argument("--heldout", type=int, default=32, help="sequences of each held-out source")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.prefix:
        go_on(options.runs, shards_of(options.prefix), options.steps, options.batch, options.heldout)
    done = lines_of(options.runs)
    print(json.dumps(compare(done)))
    if options.figure:
        draw(done, options.figure)


if __name__ == "__main__":
    main()
