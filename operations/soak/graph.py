"""The graphs that the campaigns run, and the ledger that tells what was executed, kept outside the store.

`small`: a source and two maps over it, joined: every kind of write in a few dozen. `equal`: early cutoff. `wide`: two
hundred steps in rows of ten, some of them maps. `training`: a gang that writes numbered checkpoints and goes on from
the newest. What a source yields can be changed from outside (`Ledger.source`), so that a redo can come out different.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from marin.execution import Artifact, Fleet, current_run, layout, runtime, step

WIDE_STEPS = 200
ROW = 10
CHECKPOINTS = 12
HELD_AT = 2
HOLD_SECONDS = 60.0


@dataclass(frozen=True)
class Ledger:
    """Where executions are noted, and what steers them: all outside identity.

    `pause` is how many seconds a piece of work takes; ranks of the training wait for the file `hold`, where there is
    to be one, behind their third checkpoint.
    """

    folder: str = runtime("")
    pause: float = runtime(0.0)
    hold: str = runtime("")

    def note(self, part: str = "") -> None:
        """Note one execution of the step around us, or of a part of it."""
        claim = current_run().spec.claim
        what = step_key(claim.name, claim.identity, claim.generation) + (f"+{part}" if part else "")
        (Path(self.folder) / "executions" / f"{what}@{claim.epoch}.{os.getpid()}.{uuid.uuid4().hex}").touch()
        time.sleep(self.pause)

    def wait(self) -> None:
        """Wait for the file `hold`, within bounds: a driver that dies leaves its ranks behind."""
        deadline = time.monotonic() + HOLD_SECONDS
        while self.hold and not Path(self.hold).exists() and time.monotonic() < deadline:
            time.sleep(0.02)

    def source(self) -> str:
        """What sources yield: the text of a file beside the ledger."""
        return (Path(self.folder) / "source.txt").read_text()


def open_ledger(folder: Path, source: str = "one", pause: float = 0.0, hold: str = "") -> Ledger:
    """A ledger in a folder, made unless it is there."""
    (folder / "executions").mkdir(parents=True, exist_ok=True)
    (folder / "source.txt").write_text(source)
    return Ledger(str(folder), pause, hold)


def step_key(name: str, identity: str, generation: int) -> str:
    """A step's generation in one word: the name of its record without `.json`."""
    return layout.record_key(name, identity, generation).partition("/")[2].removesuffix(".json")


@dataclass(frozen=True, kw_only=True)
class Text(Artifact):
    """A text, in a field and in a file."""

    text: str


@dataclass(frozen=True)
class Piece:
    """One item of a map."""

    number: int
    text: str
    ledger: Ledger = runtime(Ledger())


@step("soak/source", version="1")
def source(name: str, ledger: Ledger) -> Text:
    """A text from outside."""
    ledger.note()
    text = f"{name}:{ledger.source()}"
    current_run().write_bytes("text.txt", text.encode())
    return Text(text=text)


def digest_piece(piece: Piece) -> str:
    """A shard: the digest of its piece, also in a file."""
    run = current_run()
    piece.ledger.note(run.folder.rpartition("/state/")[2].partition("/")[2].rpartition("/")[0].replace("/", "."))
    digest = hashlib.sha256(f"{piece.number} {piece.text}".encode()).hexdigest()
    run.write_bytes(f"part-{piece.number:03d}.txt", digest.encode())
    return digest


@step("soak/digests", version="1", fans_out=True)
def digests(above: Text, shards: int, ledger: Ledger) -> Text:
    """A map over pieces of a text."""
    ledger.note()
    text = above.read("text.txt").decode()
    parts = current_run().map(digest_piece, [Piece(number, text, ledger) for number in range(shards)])
    current_run().write_bytes("text.txt", "".join(parts).encode())
    return Text(text=hashlib.sha256("".join(parts).encode()).hexdigest())


@step("soak/joined", version="1", inline=True)
def joined(number: int, above: tuple[Text, ...], ledger: Ledger) -> Text:
    """A fan-in."""
    ledger.note()
    text = hashlib.sha256("".join([str(number), *(one.text for one in above)]).encode()).hexdigest()
    current_run().write_bytes("text.txt", text.encode())
    return Text(text=text)


@step("soak/plain", version="1", inline=True)
def plain(name: str, ledger: Ledger) -> Text:
    """A text from outside that does not depend on the name: two of them have one output."""
    ledger.note()
    current_run().write_bytes("text.txt", ledger.source().encode())
    return Text(text=ledger.source())


@step("soak/trimmed", version="1", inline=True, cutoff=True)
def trimmed(above: Text, ledger: Ledger) -> Text:
    """A step that is not done again for an input that came out equal."""
    ledger.note()
    text = above.text.strip("o")
    current_run().write_bytes("text.txt", text.encode())
    return Text(text=text)


@dataclass(frozen=True)
class Training:
    """What each rank is told."""

    steps: int
    ledger: Ledger


def train_rank(training: Training) -> str:
    """A rank that adds up a long sum, with a checkpoint a step.

    A checkpoint is the parts of all ranks and a finish mark. What a rank computes depends on every step before, so a
    checkpoint that was mixed from two trainings shows in the result.
    """
    run = current_run()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    training.ledger.note(f"rank{rank}")
    begun, value = _newest_checkpoint(rank, world)
    for number in range(begun, training.steps):
        value = hashlib.sha256(f"{value} {rank} {number}".encode()).hexdigest()
        with run.state.write(f"step{number:04d}/rank{rank}") as stream:
            stream.write(value.encode())
        run.state.create(f"step{number:04d}/rank{rank}.done", b"")
        time.sleep(training.ledger.pause)
        if number == HELD_AT:
            training.ledger.wait()
    run.write_bytes(f"rank{rank}.txt", value.encode())
    return value


def _newest_checkpoint(rank: int, world: int) -> tuple[int, str]:
    """(the next step, our part's value) from the newest step that every rank finished in one epoch."""
    run = current_run()
    names = {(file.epoch, file.name): file for file in run.state.find("step*")}
    for epoch, name in sorted(names, key=lambda key: (key[1], key[0]), reverse=True):
        step_name, _, part = name.partition("/")
        whole = all((epoch, f"{step_name}/rank{one}.done") in names for one in range(world))
        if part == f"rank{rank}" and whole:
            value = run.state.store.read(names[epoch, name].key).decode()
            return int(step_name.removeprefix("step")) + 1, value
    return 0, "start"


@step("soak/train", version="1", fans_out=True)
def train(steps: int, ledger: Ledger) -> Text:
    """A gang that goes on from the checkpoints of its state."""
    ledger.note()
    values = current_run().gang(train_rank, Training(steps, ledger))
    current_run().write_bytes("text.txt", json.dumps(values).encode())
    return Text(text=hashlib.sha256("".join(values).encode()).hexdigest())


def small(ledger: Ledger) -> Text:
    """source → two maps → joined."""
    above = source("small", ledger)
    return joined(0, (digests(above, 2, ledger), digests(above, 3, ledger)), ledger)


def equal(ledger: Ledger) -> Text:
    """Two recipes whose outputs are equal, each with a step behind it that has early cutoff."""
    return joined(1, tuple(trimmed(plain(name, ledger), ledger) for name in ("left", "right")), ledger)


def wide(ledger: Ledger) -> Text:
    """Twenty rows of ten; each step needs two of the row above, every tenth is a map of three shards."""
    row: list[Text] = [source(f"wide{column}", ledger) for column in range(ROW)]
    for start in range(ROW, WIDE_STEPS - ROW, ROW):
        row = [
            digests(row[column], 3, ledger)
            if column == start // ROW % ROW
            else joined(start + column, (row[column], row[(column + 1) % ROW]), ledger)
            for column in range(ROW)
        ]
    ends = [joined(WIDE_STEPS - ROW + column, tuple(row), ledger) for column in range(ROW - 1)]
    return joined(WIDE_STEPS, tuple(ends), ledger)


def training(ledger: Ledger) -> Text:
    """A gang of two."""
    return train(CHECKPOINTS, ledger).on(Fleet(workers=2, workers_per_node=2))


GRAPHS = {"small": small, "equal": equal, "wide": wide, "training": training}
