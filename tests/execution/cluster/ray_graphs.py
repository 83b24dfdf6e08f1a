"""Steps whose shards and ranks misbehave in ways that only Ray can mend."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from marin.execution import Artifact, Fleet, Preempted, Stalled, current_run, runtime, step
from tests.execution.graphs import Numbers, Probe, executions

LEAK_BYTES = 64 << 20
LONG_SECONDS = 60.0


@dataclass(frozen=True)
class Item:
    """One shard: its number, and how it behaves, which is outside its identity."""

    number: int
    probe: Probe
    deed: str = runtime("")
    pause: float = runtime(0.0)


@dataclass(frozen=True)
class Deeds:
    """How many shards; what each of them does; and how long each takes, drawn from a seed."""

    shards: int
    deed: str = runtime("")
    longest: float = runtime(0.0)
    seed: int = runtime(0)
    memory_gb: float | None = runtime(None)


_leaked: list[bytearray] = []


def behave(item: Item) -> int:
    """A number that depends on the item alone, also in a file."""
    item.probe.note(f"shard-{item.number}")
    before = executions(item.probe.tally, f"shard-{item.number}")
    if item.deed == "leak":
        _leaked.append(bytearray(os.urandom(1 << 20) * (LEAK_BYTES >> 20)))
    if item.deed == "first copy of 0 hangs" and item.number == 0 and before == 1:
        time.sleep(LONG_SECONDS)
    if item.deed == "0 vanishes twice" and item.number == 0 and before <= 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if item.deed == "0 is wrong" and item.number == 0:
        raise ZeroDivisionError("a bug of shard 0")
    item.probe.wait()
    time.sleep(item.pause)
    current_run().write_bytes(f"part-{item.number:03d}.bin", hashlib.sha256(bytes([item.number])).digest())
    return item.number**3


@step("test/deeds", version="1", fans_out=True)
def deeds(name: str, config: Deeds, probe: Probe) -> Numbers:
    """Cubes of numbers, shard by shard."""
    probe.note("deeds")
    draw = random.Random(config.seed)
    items = [Item(n, probe, config.deed, draw.uniform(0, config.longest)) for n in range(config.shards)]
    return Numbers(values=tuple(current_run().map(behave, items, memory_gb=config.memory_gb)))


@dataclass(frozen=True)
class Meeting:
    """A rank's payload. The ranks wait for each other, and for the file `hold`."""

    probe: Probe
    deed: str = runtime("")


def attend(payload: Meeting) -> int:
    """A rank that works until `hold` is there, and whose collective breaks when rank 1 is gone."""
    rank = int(os.environ["RANK"])
    payload.probe.note(f"rank-{rank}")
    life = executions(payload.probe.tally, f"rank-{rank}")
    if payload.deed == "rank 1 vanishes, rank 0 raises" and life == 1:
        time.sleep(1.0)
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.5)
        raise RuntimeError("connection reset by peer")
    payload.probe.wait()
    return rank * 10


@step("test/meeting", version="1", fans_out=True)
def meeting(deed: str, probe: Probe) -> Numbers:
    """A gang of the fleet's workers."""
    probe.note("meeting")
    return Numbers(values=tuple(current_run().gang(attend, Meeting(probe, deed))))


@step("test/after", version="1", inline=True)
def after(one: Numbers, other: Numbers) -> Numbers:
    """Both together; in the driver."""
    return Numbers(values=(*one.values, *other.values))


def gang_beside_shards(workers: int, shards: int, longest: float, probe: Probe) -> Numbers:
    """A gang that is held, and beside it a step of shards that take a while."""
    slow = deeds("slow", Deeds(shards, longest=longest, seed=5), Probe(probe.tally))
    return after(meeting("", probe).on(Fleet(workers=workers)), slow)


@dataclass(frozen=True, kw_only=True)
class Seen(Artifact):
    """Digests of what a worker found in its environment."""

    digests: tuple[str, ...]


def digest_of(value: str) -> str:
    """A digest that shows that a process had the value."""
    return hashlib.sha256(value.encode()).hexdigest()


def look(names: tuple[str, ...]) -> list[str]:
    """A shard that looks at variables, and at the file that the last of them names."""
    with open(os.environ[names[-1]]) as file:
        return [digest_of(os.environ[name]) for name in names[:-1]] + [digest_of(file.read())]


@step("test/credentials", version="1", fans_out=True)
def credentials(names: tuple[str, ...]) -> Seen:
    """What a shard finds in its environment."""
    return Seen(digests=tuple(current_run().map(look, [names])[0]))


@dataclass(frozen=True)
class Shift:
    """A rank's payload: it works until the file `hold` is there, or until it is asked to end, and then saves."""

    probe: Probe
    deed: str = runtime("")


def work(payload: Shift) -> int:
    """A rank that notes its life and the size of its world, and ends in order when it is asked to.

    As in a training loop, all ranks end when one of them is asked to.
    """
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    run, node, probe = current_run(), os.environ.get("NODE_NAME", ""), payload.probe
    probe.note(f"{world}-rank-{rank}@{node}")
    life = executions(probe.tally, f"{world}-rank-{rank}@{node}")
    if payload.deed == "the bad node kills" and node == "bad":
        os.kill(os.getpid(), signal.SIGKILL)
    if payload.deed == "stalls once" and rank == 0 and life == 1:
        run.give_up(Stalled("no step for 1 s"))
        time.sleep(LONG_SECONDS)
    asked = Path(probe.tally) / f"asked.{os.environ['MASTER_PORT']}"
    while not Path(probe.hold).exists():
        if run.stop_requested() is not None or asked.exists():
            asked.touch()
            probe.note(f"saved-{world}")
            raise Preempted(run.stop_requested() or "another rank was asked to")
        time.sleep(0.05)
    return world


@step("test/shift", version="1", fans_out=True)
def shift(deed: str, sizes: tuple[int, ...], probe: Probe) -> Numbers:
    """A gang that may have several sizes."""
    return Numbers(values=tuple(current_run().gang(work, Shift(probe, deed), sizes=sizes)))


def shift_on(fleet: Fleet, deed: str, sizes: tuple[int, ...], probe: Probe) -> Numbers:
    """The shift on a fleet."""
    return shift(deed, sizes, probe).on(fleet)
