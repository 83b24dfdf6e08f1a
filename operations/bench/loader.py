"""The loader of a run: seeking, packing, and how exactly shares are kept. One JSON line a row, CPU seconds.

    python operations/bench/loader.py
    python operations/bench/loader.py --manifest cells.json --rows seek shares

The mixture is the hero's: 200 cells and 18T tokens in two phases with a ramp between them. Their sizes and weights come
from `--manifest` (the public layout of a cell table) or are drawn at random; the tokens themselves are synthetic
documents of lognormal length, in files that are read from the page cache. Rows:

- `seek`: the first micro-batch of 16 × 4096 of step 300,000 from a loader that is open but has read nothing; the peer
  is replay: drawing all sequences before it in turn, timed on a part and scaled up. `open_ms` is the time to build the
  order; `seek_banded` the same with an order from easy to hard.
- `packing`: tokens a second in batches of 16 × 4096 with targets, segments, positions and masks, for each way of
  packing.
- `shares`: the largest deviation, in sequences, of any cell in any window of 10,000, over several stretches of the run;
  `tiny` is that of the cells with a weight of 1e-6.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from marin.tokens.mixture.cells import CellTable  # noqa: E402  found in this checkout
from marin.tokens.mixture.config import RepeatMask  # noqa: E402
from marin.tokens.mixture.curve import OrderPhase  # noqa: E402
from marin.tokens.mixture.draws import Component  # noqa: E402
from marin.tokens.mixture.order import MixtureOrder  # noqa: E402
from marin.tokens.mixture.packing import pack  # noqa: E402
from marin.tokens.mixture.sequences import CarriedOn, PlannedSequences, SequenceReader, TokenStream  # noqa: E402
from marin.tokens.shards.artifacts import ShardPacking  # noqa: E402
from marin.tokens.shards.blocks import encode_checksums  # noqa: E402
from marin.tokens.shards.indexed import IndexedTokens, TokenWriter  # noqa: E402
from marin.tokens.shards.plans import PlannedSpans, plan_packing  # noqa: E402

Row = dict[str, Any]

LENGTH, ROWS_OF_A_BATCH = 4096, 16
STEP, STEPS, GLOBAL_BATCH = 300_000, 390_251, 11_264
SHARD_SEQUENCES = 15_000
RAMP = 0.01
WINDOW = 10_000
TINY = 1e-6
REPLAYED = 200_000


@dataclass(frozen=True)
class Inputs:
    """The mixture, and how often to measure."""

    table: CellTable
    rounds: int
    shards: int
    shard_tokens: int


def drawn_table(seed: int = 0) -> CellTable:
    """40 × 5 cells of 23T tokens with random sizes and weights, three of them tiny."""
    generator = np.random.default_rng(seed)
    names = [f"c{topic:02d}q{quality}" for topic in range(40) for quality in range(5)]
    sizes = (generator.dirichlet(np.ones(200)) * 23e12).astype(np.int64) + LENGTH
    weights = []
    for _ in range(2):
        row = generator.dirichlet(np.full(200, 0.5))
        row[:3] = TINY
        weights.append(dict(zip(names, (row / row.sum()).tolist(), strict=True)))
    return CellTable(
        tokenizer="synthetic",
        available_tokens=dict(zip(names, sizes.tolist(), strict=True)),
        phase_budgets=(15_000_000_000_000, 3_750_000_000_000),
        phase_weights=tuple(weights),
    )


def order_of(table: CellTable, bands: int = 1) -> MixtureOrder:
    """The order of the hero's run over the cells of a table."""
    components = []
    for name, tokens in sorted(table.available_tokens.items()):
        sequences = -(-tokens // LENGTH)
        components.append(Component(name, sequences, (*range(0, sequences, SHARD_SEQUENCES), sequences)))
    phases = [
        OrderPhase(phase.share, tuple(phase.weights[item.name] for item in components), RAMP * (index > 0))
        for index, phase in enumerate(table.config().phases)
    ]
    return MixtureOrder(components, phases, STEPS * GLOBAL_BATCH, 0, bands=bands)


def seek(inputs: Inputs) -> Iterator[Row]:
    """Time to the first micro-batch of a step far into the run."""
    with tempfile.TemporaryDirectory() as folder:
        streams = token_streams(Path(folder), inputs.shards, inputs.shard_tokens)
        for name, bands in (("seek", 1), ("seek_banded", 16)):
            best = open_best = float("inf")
            for _ in range(inputs.rounds):
                started = time.process_time()
                order = order_of(inputs.table, bands)
                opened = time.process_time()
                batch_at(order, streams, STEP * GLOBAL_BATCH)
                best = min(best, time.process_time() - opened)
                open_best = min(open_best, opened - started)
            started = time.process_time()
            order.lookup(0, REPLAYED)
            replay = (time.process_time() - started) / REPLAYED * STEP * GLOBAL_BATCH
            yield {
                "name": name,
                "ours": round(best * 1e3, 3),
                "peer": round(replay * 1e3),
                "ratio": round(replay / best),
                "unit": "ms CPU",
                "input": f"{len(order.names)} cells, step {STEP:,} of {STEPS:,}, {bands} bands",
                "open_ms": round(open_best * 1e3, 1),
            }


def batch_at(order: MixtureOrder, streams: list[TokenStream], place: int) -> None:
    """A micro-batch, its sequences read from the synthetic shards."""
    refs = order.lookup(place, ROWS_OF_A_BATCH)
    reads = []
    for component, sequence in zip(refs.components.tolist(), refs.sequences.tolist(), strict=True):
        stream = streams[component % len(streams)]
        reads.append((CarriedOn(stream, [stream.tokens], LENGTH), sequence % (stream.tokens // LENGTH)))
    pack(reads, LENGTH, 0, components=refs.components, epochs=refs.epochs)


def packing(inputs: Inputs) -> Iterator[Row]:
    """Tokens a second that one core packs."""
    with tempfile.TemporaryDirectory() as folder:
        streams = token_streams(Path(folder), inputs.shards, inputs.shard_tokens)
        carried: list[SequenceReader] = [CarriedOn(stream, [stream.tokens], LENGTH) for stream in streams]
        yield packing_row("carry_on", carried, inputs, streams)
        masked = packing_row("carry_on", carried, inputs, streams, RepeatMask())
        yield masked | {"name": "packing_repeat_mask"}
        for policy in ("truncate", "best_fit"):
            started = time.process_time()
            planned = [PlannedStream(stream, policy) for stream in streams]
            seconds = time.process_time() - started
            tokens = sum(stream.tokens for stream in streams)
            figures = {
                "plan_share_of_bytes": round(sum(reader.plan_bytes for reader in planned) / (2 * tokens), 5),
                "padded_share": round(sum(reader.padded_places for reader in planned) / tokens, 5),
                "dropped_share": round(sum(reader.dropped_tokens for reader in planned) / tokens, 5),
                "plan_m_tokens_per_s": round(tokens / seconds / 1e6, 1),
            }
            yield packing_row(policy, list(planned), inputs, streams) | figures


def packing_row(
    policy: str,
    sources: list[SequenceReader],
    inputs: Inputs,
    streams: list[TokenStream],
    mask: RepeatMask | None = None,
) -> Row:
    """The row of one way of packing."""
    speed, rounds = packed_speed(sources, inputs.rounds, mask)
    return {
        "name": f"packing_{policy}",
        "ours": round(speed / 1e6, 1),
        "unit": "M tokens/CPU-s",
        "input": f"{ROWS_OF_A_BATCH} x {LENGTH}, {inputs.shards} shards of {inputs.shard_tokens:,} tokens",
        "rounds": rounds,
    }


class PlannedStream(PlannedSequences):
    """Sequences of a stream of one shard by a plan that is made here; ``plan_bytes`` is its size."""

    def __init__(self, stream: TokenStream, policy: str) -> None:
        lengths = stream.shard(0).lengths
        plan, losses = plan_packing(lengths, policy, LENGTH)
        self.plan_bytes = len(plan.to_bytes())
        packing = ShardPacking(plan.sequences, losses.dropped_tokens, losses.padded_places, self.plan_bytes)
        spans = PlannedSpans(plan, lengths)
        super().__init__(stream, [packing], lambda shard, source: spans)


def packed_speed(
    sources: list[SequenceReader], rounds: int, mask: RepeatMask | None, batches: int = 100
) -> tuple[float, list[float]]:
    """Best tokens a CPU second of several rounds over random sequences, and every round in millions."""
    generator = np.random.default_rng(0)
    speeds = []
    for _ in range(rounds):
        chosen = [
            [
                (sources[at], int(generator.integers(sources[at].count)))
                for at in generator.integers(0, len(sources), 16)
            ]
            for _ in range(batches)
        ]
        started = time.process_time()
        for reads in chosen:
            pack(reads, LENGTH, 0, repeat_mask=mask)
        speeds.append(batches * ROWS_OF_A_BATCH * LENGTH / (time.process_time() - started))
    return max(speeds), [round(speed / 1e6, 1) for speed in speeds]


def shares(inputs: Inputs) -> Iterator[Row]:
    """Largest deviation from what was asked of every cell in every window."""
    order = order_of(inputs.table)
    cells = np.arange(len(order.names))
    tiny = [index for index, name in enumerate(order.names) if inputs.table.phase_weights[0][name] <= TINY * (1 + 1e-6)]
    worst = np.zeros(len(cells))
    stretch = 10 * WINDOW
    places = 0
    for first in (0, STEP * GLOBAL_BATCH, order.ends[0] - stretch // 2, order.total - stretch):
        drawn = order.lookup(first, stretch).components
        places += stretch
        for cell in cells:
            counts = np.concatenate([[0], np.cumsum(drawn == cell)])
            error = counts - order.curve.before(first + np.arange(stretch + 1), np.full(stretch + 1, cell))
            worst[cell] = max(worst[cell], np.abs(error[WINDOW:] - error[:-WINDOW]).max())
    yield {
        "name": "shares",
        "ours": round(float(worst.max()), 3),
        "tiny": round(float(worst[tiny].max()), 3) if tiny else None,
        "unit": "sequences",
        "input": f"every window of {WINDOW:,} in {places:,} places, {len(cells)} cells",
    }


def token_streams(folder: Path, shards: int, tokens: int) -> list[TokenStream]:
    """Streams of one shard each, of documents of lognormal length, already in the page cache."""
    generator = np.random.default_rng(1)
    streams = []
    for number in range(shards):
        lengths = np.clip(generator.lognormal(6.5, 1.1, tokens // 1000), 2, 60_000).astype(int).tolist()
        path = folder / f"{number}.bin"
        with path.open("wb") as file:
            writer = TokenWriter(file, "int32", 128_256)
            for first in range(0, len(lengths), 1000):
                part = lengths[first : first + 1000]
                writer.add(generator.integers(0, 128_256, sum(part)).tolist(), part)
        index = writer.index.to_bytes()
        path.with_suffix(".idx").write_bytes(index)
        opened = IndexedTokens(path, path.with_suffix(".idx"), encode_checksums(writer.checksums, index))
        streams.append(TokenStream([opened.tokens], lambda _, opened=opened: opened))
    return streams


ROWS: dict[str, Callable[[Inputs], Iterator[Row]]] = {"seek": seek, "packing": packing, "shares": shares}


def main() -> None:
    """Print the rows that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--manifest", type=Path, metavar="FILE", help="a cell table in the public layout")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--shard-tokens", type=int, default=20_000_000)
    options = parser.parse_args()
    table = CellTable.from_json(options.manifest.read_text()) if options.manifest else drawn_table()
    inputs = Inputs(table, options.rounds, options.shards, options.shard_tokens)
    for name in options.rows:
        for row in ROWS[name](inputs):
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
