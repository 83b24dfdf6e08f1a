"""Small steps that tests run: in this process, in driver processes, and on Ray.

Executions are counted in a folder outside the store, which is never part of an identity.
"""

from __future__ import annotations

import logging
import os
import signal
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from marin.execution import Artifact, Fleet, Flow, StepError, current_run, runtime, step

PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Probe:
    """Where executions are counted, and what holds a step up: all outside identity."""

    tally: str = runtime("")
    hold: str = runtime("")
    """A step that is held goes on when this file exists."""

    def note(self, what: str) -> None:
        """Count one execution of `what`."""
        if self.tally:
            (Path(self.tally) / f"{what}.{os.getpid()}.{uuid.uuid4().hex}").touch()

    def wait(self) -> None:
        """Wait for the file `hold`, within bounds; reports progress, so that a cancelled run ends here."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self.hold and not Path(self.hold).exists():
            if time.monotonic() > deadline:
                raise AssertionError("held for too long")
            current_run().progress(0, 1, "waits")
            time.sleep(0.05)


def executions(tally: Path | str, what: str) -> int:
    """How often `what` was executed."""
    return len(list(Path(tally).glob(f"{what}.*")))


def executing(tally: Path | str, what: str) -> list[int]:
    """The processes that executed `what`."""
    return [int(path.name.split(".")[-2]) for path in Path(tally).glob(f"{what}.*")]


@dataclass(frozen=True, kw_only=True)
class Text(Artifact):
    """A text, in a field and in a file."""

    text: str


@dataclass(frozen=True, kw_only=True)
class Numbers(Artifact):
    """Results of shards or ranks."""

    values: tuple[int, ...]


@step("test/leaf", version="1")
def leaf(text: str, probe: Probe = Probe()) -> Text:
    """Write a text."""
    probe.note(f"leaf-{text}")
    probe.wait()
    current_run().write_bytes("text.txt", text.encode())
    return Text(text=text)


@step("test/upper", version="1")
def upper(source: Text, probe: Probe = Probe()) -> Text:
    """The same in capitals, read from the file."""
    probe.note(f"upper-{source.text}")
    text = source.read("text.txt").decode().upper()
    current_run().write_bytes("text.txt", text.encode())
    return Text(text=text)


@step("test/joined", version="1")
def joined(parts: tuple[Text, ...], probe: Probe = Probe()) -> Text:
    """Texts one after the other."""
    probe.note("joined")
    text = "+".join(part.text for part in parts)
    current_run().write_bytes("text.txt", text.encode())
    return Text(text=text)


@step("test/failing", version="1")
def failing(kind: str, source: Text | None = None, probe: Probe = Probe()) -> Text:
    """Fail in one way or another."""
    probe.note(f"failing-{kind}")
    if kind == "people":
        raise StepError("the crawl has no pages")
    if kind == "bug":
        raise ZeroDivisionError("a bug of the step")
    if kind == "chain":
        try:
            try:
                raise FileNotFoundError("no such shard")
            except FileNotFoundError as error:
                raise ValueError("the shard cannot be read") from error
        except ValueError:
            raise ZeroDivisionError("a bug while mending")  # noqa: B904 - an exception during another is the case here
    if kind == "type":
        return "not an artifact"  # type: ignore[return-value]
    if kind == "flow":
        current_run().account(Flow("records", read=10, kept=7, dropped={"empty": 2}))
    if kind == "vanish once" and executions(probe.tally, "failing-vanish once") == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return Text(text=kind)


@dataclass(frozen=True)
class Shard:
    """One item of a map."""

    number: int
    probe: Probe
    pause: float = runtime(0.0)


def square(shard: Shard) -> int:
    """A shard function: its square, also in a file."""
    shard.probe.note(f"shard-{shard.number}")
    logging.getLogger(__name__).warning("shard %d speaks", shard.number)
    run = current_run()
    run.write_bytes(f"part-{shard.number:03d}.txt", str(shard.number**2).encode())
    run.account(Flow("numbers", read=1, kept=1))
    time.sleep(shard.pause)
    return shard.number**2


@dataclass(frozen=True)
class MapConfig:
    """How many shards; and how slow."""

    shards: int
    pause: float = runtime(0.0)
    memory_gb: float | None = runtime(None)


@step("test/squares", version="1", fans_out=True)
def squares(name: str, config: MapConfig, probe: Probe = Probe()) -> Numbers:
    """Square numbers shard by shard."""
    probe.note(f"squares-{name}")
    items = [Shard(number, probe, config.pause) for number in range(config.shards)]
    return Numbers(values=tuple(current_run().map(square, items, memory_gb=config.memory_gb)))


@dataclass(frozen=True)
class GangPayload:
    """What each rank is told."""

    kind: str
    probe: Probe


def rank_entry(payload: GangPayload) -> int:
    """A rank: leaves a file, and fails as it is told to."""
    run = current_run()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    assert world == run.fleet.workers
    assert {"LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= set(os.environ)
    payload.probe.note(f"rank-{rank}")
    logging.getLogger(__name__).warning("rank %d speaks", rank)
    if payload.kind == "killed once" and executions(payload.probe.tally, f"rank-{rank}") <= 1:
        if rank == 1:
            run.state.create("rank-1-was-here", b"")
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(PATIENCE_SECONDS)
    if payload.kind == "held":
        time.sleep(PATIENCE_SECONDS)
    if payload.kind == "leaves" and rank == 1:
        os._exit(3)
    if payload.kind == "leaves":
        time.sleep(PATIENCE_SECONDS)
    if payload.kind == "bug" and rank == 1:
        raise ZeroDivisionError("a bug of rank 1")
    if payload.kind == "bug":
        time.sleep(PATIENCE_SECONDS)
    run.write_bytes(f"rank-{rank}.txt", str(world).encode())
    return rank * 10


@step("test/gang", version="1", fans_out=True)
def gang(kind: str, probe: Probe) -> Numbers:
    """One process per worker of the fleet."""
    probe.note(f"gang-{kind}")
    return Numbers(values=tuple(current_run().gang(rank_entry, GangPayload(kind, probe))))


@step("test/greedy", version="1", cpus=4096, memory_gb=2**20)
def greedy(probe: Probe = Probe()) -> Text:
    """Asks for more than any node has."""
    probe.note("greedy")
    return Text(text="never")


def diamond(probe: Probe) -> Text:
    """leaf a, leaf b → upper a, upper b → joined."""
    return joined(tuple(upper(leaf(text, probe), probe) for text in ("a", "b")), probe)


def graph(name: str, probe: Probe) -> Artifact:
    """A graph by name, for driver processes."""
    if name == "diamond":
        return diamond(probe)
    if name == "held":
        return joined((leaf("quick", Probe(probe.tally)), leaf("held", probe)), Probe(probe.tally))
    if name == "map":
        return squares("slow", MapConfig(shards=12, pause=0.25), probe)
    if name == "gang held":
        return gang("held", probe).on(Fleet(workers=2))
    if name == "gang":
        return gang("plain", probe).on(Fleet(workers=2))
    raise ValueError(f"no graph {name!r}")
