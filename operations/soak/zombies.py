"""Holders that seem to be dead and are not: they come back early, late, or while their successor commits.

    python operations/soak/zombies.py --minutes 5 --seed 1 --folder /dev/shm

A round is one prefix with two drivers. The first stops writing its heartbeat, may not see that it was followed, is an
hour off or not, and is held up at a random write for a random while; or the whole process is stopped while the gang
that it started trains on. The second takes over, is held up as well, and may fall silent too. In the end both have
succeeded, with one result that is whole; every checkpoint of every epoch has the bytes of an undisturbed training.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from marin.storage import open_store
from operations.soak import invariants
from operations.soak.campaign import Round, play_campaign
from operations.soak.drive import Drive
from operations.soak.faults import WRITES, Fault, Rule
from operations.soak.forks import Forked, driven
from operations.soak.graph import Ledger, open_ledger

STALE_SECONDS = 1.0
LAST_WRITE = {"small": 30, "training": 24}
TAKEOVER_SECONDS = 5.0
LONGEST_HOLD_SECONDS = 3.0
HOUR = 3600.0

SILENT = Rule(Fault.drop, frozenset({"put"}), keys="_runs/", after=1)
BLIND = Rule(Fault.hide, frozenset({"size"}), keys="_claims/")


def play(one: Round) -> None:
    """One prefix: a zombie and its successor."""
    graph = one.random.choice(("small", "training"))
    alone = str(one.folder / "alone")
    one.expect(driven(Drive(alone, graph, open_ledger(one.folder / "alone ledger"))) == 0, "it fails undisturbed")
    open_ledger(one.ledger)
    gates = [one.folder / "first goes", one.folder / "second goes"]
    early = one.random.random() < 0.3
    holds = [one.random.uniform(0.0, LONGEST_HOLD_SECONDS) for _ in gates]
    freeze = one.random.random() < 0.3
    with Forked(zombie(one, graph, gates[0], freeze), quiet=True) as first:
        time.sleep(one.random.uniform(0.2, 0.6))
        if freeze:
            first.signal(signal.SIGSTOP)
        with Forked(successor(one, graph, gates[1]), quiet=True) as second:
            if not early:
                await_takeover(one.ledger)
            started = time.monotonic()
            for hold, index in sorted(zip(holds, (0, 1), strict=True)):
                time.sleep(max(0.0, started + hold - time.monotonic()))
                gates[index].touch()
                if index == 0:
                    first.signal(signal.SIGCONT)
            codes = (first.ended(), second.ended())
    one.expect(codes == (0, 0), f"the drivers ended with exit codes {codes}")
    store = open_store(one.prefix)
    expected = invariants.outputs(open_store(alone))
    one.expect(invariants.outputs(store) == expected, "the outputs are not those of an undisturbed run")
    one.violations += invariants.damage(store) + invariants.stale(store)
    found = invariants.records(store)
    one.expect(all(record["generation"] == 1 for record in found.values()), "a step has a second generation")
    same = invariants.state(open_store(alone), "soak/train").items() >= invariants.state(store, "soak/train").items()
    one.expect(same, "a checkpoint has other bytes than an undisturbed one")
    epochs = [record["provenance"]["epoch"] for record in found.values()]
    began = {(note.step, note.epoch) for note in invariants.notes(one.ledger) if not note.part}
    one.counts.update(
        {
            graph: 1,
            "commits": len(epochs),
            "taken over": sum(epoch > 1 for _, epoch in began),
            "won by a successor": len(epochs) - epochs.count(1),
        }
    )


def await_takeover(ledger: Path) -> None:
    """Return when a second holder has begun a step; after some seconds anyhow, as there may be nothing to take over."""
    deadline = time.monotonic() + TAKEOVER_SECONDS
    while time.monotonic() < deadline and all(note.epoch == 1 for note in invariants.notes(ledger)):
        time.sleep(0.05)


def zombie(one: Round, graph: str, gate: Path, freeze: bool) -> Drive:
    """The driver that is given up."""
    hold = Rule(Fault.hold, WRITES, at=one.random.randint(2, LAST_WRITE[graph]), until=str(gate))
    rules = (hold,) if freeze else (hold, SILENT, *((BLIND,) if one.random.random() < 0.5 else ()))
    skew = one.random.choice((0.0, HOUR, -HOUR))
    held = str(gate) if one.random.random() < 0.5 else ""
    ledger = Ledger(str(one.ledger), pause=one.random.choice((0.02, 0.2)), hold=held)
    return Drive(one.prefix, graph, ledger, rules, STALE_SECONDS, skew)


def successor(one: Round, graph: str, gate: Path) -> Drive:
    """The driver that takes over."""
    hold = Rule(Fault.hold, WRITES, at=one.random.randint(2, LAST_WRITE[graph]), until=str(gate))
    silent = (SILENT,) if one.random.random() < 0.2 else ()
    rules = ((hold,) if one.random.random() < 0.5 else ()) + silent
    ledger = Ledger(str(one.ledger), pause=one.random.choice((0.02, 0.1)))
    return Drive(one.prefix, graph, ledger, rules, STALE_SECONDS, one.random.choice((0.0, HOUR, -HOUR)))


def main(arguments: list[str] | None = None) -> int:
    """Play until the time is over."""
    return play_campaign("zombies", "let holders come back from the dead", play, arguments)


if __name__ == "__main__":
    sys.exit(main())
