"""Drivers that die at random writes, over stores that fail, again and again, until one comes through.

    python operations/soak/boundaries.py --minutes 5 --seed 1 --folder /dev/shm

A round is one prefix: up to four drivers in a row are killed before or after a random write, while their store loses
requests and replies, repeats and delays; in half of the rounds the graph was made before, and a forced redo of its
source is what dies. After each death, and after the driver that is let through, the prefix must hold what the README
beside this says.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from marin.storage import open_store
from operations.soak import invariants
from operations.soak.campaign import Round, play_campaign, undisturbed
from operations.soak.drive import Drive
from operations.soak.faults import READS, WRITES, Fault, Rule
from operations.soak.forks import KILLED, driven
from operations.soak.graph import Ledger, open_ledger

DEATHS = 4
LAST_WRITE = 32


def faults(one: Round) -> tuple[Rule, ...]:
    """A store that fails now and then."""
    seed = one.random.randrange(10**9)
    chance = one.random.choice((0.0, 0.02, 0.05))
    return (
        Rule(Fault.refuse, READS | WRITES, chance=chance, seed=seed),
        Rule(Fault.lose_reply, WRITES, chance=chance, seed=seed + 1),
        Rule(Fault.repeat, WRITES, chance=2 * chance, seed=seed + 2),
        Rule(Fault.delay, READS | WRITES, chance=chance, seed=seed + 3, seconds=0.01),
    )


def drive(one: Round, graph: str, ledger: Ledger, *rules: Rule, force: str | None = None) -> Drive:
    """A driver with faults."""
    threads = one.random.choice((1, 4))
    return Drive(one.prefix, graph, ledger, (*rules, *faults(one)), force=force, max_concurrent=threads)


def play(one: Round) -> None:
    """One prefix, some deaths, one driver that comes through."""
    graph, source = one.random.choice((("small", "soak/source"), ("equal", "soak/plain")))
    text = one.random.choice(("one", "two"))
    old = undisturbed(one.folder / "one", graph)
    new = undisturbed(one.folder / "two", graph, text)
    store, redo = open_store(one.prefix), one.random.random() < 0.5
    if redo:
        one.expect(driven(Drive(one.prefix, graph, open_ledger(one.folder / "made"))) == 0, "the first run failed")
    ledger = open_ledger(one.ledger, text)
    for number in range(one.random.randint(1, DEATHS)):
        fault = one.random.choice((Fault.die_before, Fault.die_after))
        dies = Rule(fault, WRITES, at=one.random.randint(1, LAST_WRITE))
        force = source if redo and number == 0 else None
        before, noted = invariants.finished(store), invariants.executions(one.ledger)
        code = driven(drive(one, graph, ledger, dies, force=force), quiet=True)
        one.counts["deaths"] += code == KILLED
        one.counts["drivers"] += 1
        one.expect(code in (0, KILLED), f"a driver ended with exit code {code}")
        one.violations += invariants.damage(store)
        one.violations += invariants.repeated(before, noted, invariants.executions(one.ledger))
    before, noted = invariants.finished(store), invariants.executions(one.ledger)
    one.expect(driven(drive(one, graph, ledger), quiet=True) == 0, "the last driver failed")
    one.counts["drivers"] += 1
    one.violations += invariants.damage(store) + invariants.stale(store)
    one.violations += invariants.repeated(before, noted, invariants.executions(one.ledger))
    redone = [record for record in invariants.finished(store).records if ".r2" in record]
    sources = [record for record in redone if record.startswith(source.replace("/", "."))]
    one.counts["redone"] += len(redone)
    if graph == "small" or len(sources) != 1:  # one of two sources was redone: a mixture of old and new is right
        expected = new if sources or not redo else old
        one.expect(invariants.outputs(store) == expected, "the outputs are not those of an undisturbed run")
    one.expect(text == "two" or redone == sources, "a step was redone although its input did not change")
    idle = invariants.finished(store)
    one.expect(driven(Drive(one.prefix, graph, ledger), quiet=True) == 0, "the idle driver failed")
    one.expect(invariants.finished(store) == idle, "a driver with nothing to do did something")


def main(arguments: list[str] | None = None) -> int:
    """Play until the time is over."""
    return play_campaign("boundaries", "kill drivers at random writes", play, arguments)


if __name__ == "__main__":
    sys.exit(main())
