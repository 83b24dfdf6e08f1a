"""Saves and restores of a training state: what training waits for, the whole cost, and memory. One JSON line a row.

    python operations/bench/checkpoint.py
    python operations/bench/checkpoint.py --megabytes 500 --rounds 9 --folder /mnt/disk

The state is that of an MoE model with AdamW (weights and two moments), in one process, on the local disk. CPU seconds
of the thread or process that does the work, medians of interleaved rounds; `wall` has the same by the clock. Rows:

- `blocking`: what training waits for in an asynchronous save, the copy of the state; the peer is the same save made
  while training waits. `share` is the part of it that is left.
- `blocking_torch_save`: the same; the peer is `torch.save` of the same tensors into one file.
- `save`: the whole save with its index, digests and finish mark; the peer is `torch.save`, which has none of them.
  `peer_and_digest` adds the sha256 of its file, as a store needs it to notice damage.
- `restore`: choosing the newest checkpoint by its digests and filling the live tensors; the peer is `torch.load` and
  a copy into them. `without_digests` trusts the files.
- `memory_save`, `memory_restore`: the largest resident memory beside the state, in states, of an asynchronous save
  with its buffers in place, and of a restore; the peers are `torch.save` and `torch.load`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402  found in this checkout, as what follows
from torch import Tensor  # noqa: E402

from marin.checkpoint.background import BackgroundSaver, Saved  # noqa: E402
from marin.checkpoint.config import CheckpointPolicy  # noqa: E402
from marin.checkpoint.progress import Progress  # noqa: E402
from marin.checkpoint.ranks import Ranks  # noqa: E402
from marin.checkpoint.store import CheckpointStore  # noqa: E402
from tests.checkpoint.holder import holder  # noqa: E402

Row = dict[str, Any]
Measured = tuple[float, float]
"""CPU seconds and wall seconds."""

MATRIX = (1024, 1024)
STATE_KINDS = ("model.{}", "optimizer.{}.exp_avg", "optimizer.{}.exp_avg_sq")


def made_state(megabytes: int) -> dict[str, Tensor]:
    """Named matrices of `megabytes` in all, with as many bytes of each moment as of weights."""
    layers = max(1, megabytes * 1_000_000 // (4 * MATRIX[0] * MATRIX[1] * len(STATE_KINDS)))
    generator = torch.Generator().manual_seed(0)
    return {
        kind.format(f"blocks.{layer}.weight"): torch.randn(MATRIX, generator=generator)
        for layer in range(layers)
        for kind in STATE_KINDS
    }


@dataclass
class Case:
    """One state, where it is saved, and what each round measured, by name."""

    state: dict[str, Tensor]
    folder: Path
    step: int = 0
    times: dict[str, list[Measured]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        run = holder(str(self.folder / "store"))
        self.store = CheckpointStore(run.state, check_lease=run.check_lease, ranks=Ranks.alone())
        self.trusting = CheckpointStore(
            run.state, check_lease=run.check_lease, ranks=Ranks.alone(), verify_digests=False
        )
        policy = CheckpointPolicy(rehearse=False)
        self.saver = BackgroundSaver(self.store, Ranks.alone(), policy, read_back_first=False)
        self.file = self.folder / "peer.pt"

    @property
    def bytes(self) -> int:
        """Of the state."""
        return sum(tensor.nbytes for tensor in self.state.values())

    def progress(self) -> Progress:
        """Of the next step."""
        self.step += 1
        return Progress(
            step=self.step,
            next_sequence=self.step,
            tokens=self.step,
            updates=self.step,
            skipped_in_a_row=0,
            metrics=(),
            validations=(),
            random_states=(),
            identity={},
            parts={},
        )

    def asynchronous(self) -> None:
        """Measures the copy, then lets the save end."""
        progress = self.progress()
        self.timed(
            "staging",
            lambda: self.saver.begin(self.state, progress, permanent=False, before=_nothing),
            time.thread_time,
        )
        while self.saver.busy:
            self.saver.pause()
            event = self.saver.poll().event
            assert event is None or isinstance(event, Saved), event

    def synchronous(self) -> None:
        """The save without a copy, while everything waits."""
        progress = self.progress()
        self.timed("save", lambda: self.store.save(self.state, progress))

    def torch_save(self) -> None:
        """The peer's save, and the digest that it lacks."""
        self.timed("torch_save", lambda: torch.save(self.state, self.file))
        self.timed("digest", lambda: _digest(self.file))

    def restore(self, store: CheckpointStore, name: str) -> None:
        """The newest checkpoint into the live tensors."""

        def work() -> None:
            found = store.newest()
            assert found is not None
            store.load(found, self.state)

        self.timed(name, work)

    def torch_load(self) -> None:
        """The peer's restore into the live tensors."""

        def work() -> None:
            for name, tensor in torch.load(self.file, weights_only=True).items():
                self.state[name].copy_(tensor)

        self.timed("torch_load", work)

    def timed(self, name: str, work: Callable[[], Any], clock: Callable[[], float] = time.process_time) -> None:
        """Adds one measurement."""
        wall, cpu = time.perf_counter(), clock()
        work()
        self.times.setdefault(name, []).append((clock() - cpu, time.perf_counter() - wall))

    def median(self, name: str) -> Measured:
        """Of all rounds."""
        cpu, wall = zip(*self.times[name], strict=True)
        return statistics.median(cpu), statistics.median(wall)


def _nothing() -> None:
    """No metrics."""


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def peak_above(work: Callable[[], Any]) -> int:
    """Bytes of resident memory that `work` needs at its peak beyond what is there before (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins anew
    before = _memory("VmRSS")
    work()
    return _memory("VmHWM") - before


def _memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name + ":")).split()[1]) * 1024


def time_rows(case: Case, rounds: int) -> list[Row]:
    """All rows of times; the first round of all is not counted, since it makes buffers and files."""
    for number in range(rounds + 1):
        case.asynchronous()
        case.synchronous()
        case.torch_save()
        case.restore(case.store, "restore")
        case.restore(case.trusting, "restore_trusting")
        case.torch_load()
        if number == 0:
            case.times.clear()
    staging, save, torch_save, digest = (case.median(name) for name in ("staging", "save", "torch_save", "digest"))
    restore, trusting, load = (case.median(name) for name in ("restore", "restore_trusting", "torch_load"))
    return [
        {**_row("blocking", staging, save, case, rounds), "share": round(staging[0] / save[0], 4)},
        {
            **_row("blocking_torch_save", staging, torch_save, case, rounds),
            "share": round(staging[0] / torch_save[0], 4),
        },
        {**_row("save", save, torch_save, case, rounds), "peer_and_digest": round(torch_save[0] + digest[0], 4)},
        {**_row("restore", restore, load, case, rounds), "without_digests": round(trusting[0], 4)},
    ]


def memory_rows(case: Case) -> list[Row]:
    """Peaks of one save and one restore each, after all buffers exist."""
    names = {
        "memory_save": (case.asynchronous, case.torch_save),
        "memory_restore": (lambda: case.restore(case.store, "restore"), case.torch_load),
    }
    rows = []
    for name, (ours, peer) in names.items():
        peaks = [peak_above(work) / case.bytes for work in (ours, peer)]
        rows.append(
            {
                "name": name,
                "ours": round(peaks[0], 4),
                "peer": round(peaks[1], 4),
                "ratio": round(peaks[1] / max(peaks[0], 1e-4), 2),
                "unit": "states of memory beside the state",
                "input": _input(case),
                "buffers_kept": round(case.saver.copy.size / case.bytes, 4),
            }
        )
    return rows


def _row(name: str, ours: Measured, peer: Measured, case: Case, rounds: int) -> Row:
    return {
        "name": name,
        "ours": round(ours[0], 4),
        "peer": round(peer[0], 4),
        "ratio": round(peer[0] / ours[0], 2),
        "unit": "CPU s",
        "input": _input(case),
        "wall": [round(ours[1], 4), round(peer[1], 4)],
        "rounds": rounds,
        "torch": torch.__version__,
    }


def _input(case: Case) -> str:
    return f"{case.bytes / 1e6:.0f} MB in {len(case.state)} tensors"


def main(arguments: list[str] | None = None) -> int:
    """Prints the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where to write; a temporary folder otherwise")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="checkpoint-bench-", dir=given.folder))
    try:
        case = Case(made_state(given.megabytes), folder)
        for row in (*time_rows(case, given.rounds), *memory_rows(case)):
            print(json.dumps(row), flush=True)
    finally:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
