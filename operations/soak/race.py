"""Five drivers race over two hundred steps while some of them are killed, and some stopped for longer than a heartbeat.

    python operations/soak/race.py --minutes 10 --seed 1 --folder /dev/shm

A round is one prefix. A killed driver is replaced by a fresh one until the round's kills are used up. About half of the
drivers look as if they were on another machine, so that their death shows only in a heartbeat that stands still; clocks
are up to an hour apart. In the end every driver that was not killed has succeeded, each step has one record, what it
says is there, and nothing was done twice but what a killed or stopped driver had in hand.
"""

from __future__ import annotations

import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from marin.storage import open_store
from operations.soak import invariants
from operations.soak.campaign import Round, begun_for_nothing, play_campaign, undisturbed
from operations.soak.drive import Drive
from operations.soak.forks import Forked
from operations.soak.graph import WIDE_STEPS, open_ledger

DRIVERS = 5
KILLS = 12
STOPS = 3
STALE_SECONDS = 4.0
ROUND_SECONDS = 180.0
HOUR = 3600.0


def play(one: Round) -> None:
    """One prefix: a race with deaths and stops."""
    expected = undisturbed(one.folder / "alone", "wide")
    ledger = open_ledger(one.ledger, pause=one.random.choice((0.05, 0.15)))
    kills, stops = one.random.randint(1, KILLS), one.random.randint(0, STOPS)
    disturbed: set[int] = set()
    killed: set[int] = set()
    continues: dict[int, float] = {}
    with ExitStack() as all_drivers:

        def start() -> Forked:
            one.counts["drivers"] += 1
            return all_drivers.enter_context(
                Forked(
                    Drive(
                        one.prefix,
                        "wide",
                        ledger,
                        stale_after=STALE_SECONDS,
                        skew=one.random.choice((0.0, HOUR, -HOUR)),
                        elsewhere=one.random.random() < 0.5,
                    ),
                    quiet=True,
                )
            )

        drivers = [start() for _ in range(DRIVERS)]
        deadline = time.monotonic() + ROUND_SECONDS
        next_at = time.monotonic() + one.random.uniform(0.2, 1.0)
        while any(driver.is_alive for driver in drivers):
            now = time.monotonic()
            if now > deadline:
                one.violations.append(f"stuck: {sum(d.is_alive for d in drivers)} drivers after {ROUND_SECONDS:g} s")
                break
            for driver in drivers:
                if continues.get(driver.pid, now + 1) <= now:
                    driver.signal(signal.SIGCONT)
                    del continues[driver.pid]
            running = [driver for driver in drivers if driver.is_alive and driver.pid not in continues]
            if now > next_at and running and kills + stops:
                victim = one.random.choice(running)
                disturbed.add(victim.pid)
                if one.random.randrange(kills + stops) < kills:
                    kills -= 1
                    killed.add(victim.pid)
                    victim.signal(signal.SIGKILL)
                    drivers.append(start())
                else:
                    stops -= 1
                    continues[victim.pid] = now + one.random.uniform(0.5, 2.5) * STALE_SECONDS
                    victim.signal(signal.SIGSTOP)
                    one.counts["stops"] += 1
                next_at = time.monotonic() + one.random.uniform(0.05, 0.8)
            time.sleep(0.02)
        for driver in drivers:
            wanted = (0, -signal.SIGKILL) if driver.pid in killed else (0,)
            if not driver.is_alive:
                code = driver.ended()
                one.counts["kills"] += code == -signal.SIGKILL
                one.expect(code in wanted, f"the driver {driver.pid} ended with exit code {code}")
    store = open_store(one.prefix)
    found = invariants.records(store)
    one.counts["commits"] += len(found)
    one.expect(len(found) == WIDE_STEPS, f"{len(found)} records, not {WIDE_STEPS}")
    one.expect(invariants.outputs(store) == expected, "the outputs are not those of an undisturbed run")
    one.violations += invariants.damage(store) + invariants.stale(store)
    one.violations += begun_for_nothing(one.ledger, disturbed)
    counts = invariants.executions(one.ledger)
    one.counts["executions"] += sum(counts.values())
    one.counts["executed again"] += sum(count - 1 for count in counts.values())


def main(arguments: list[str] | None = None) -> int:
    """Play until the time is over."""
    return play_campaign("race", "kill and stop drivers that race", play, arguments)


if __name__ == "__main__":
    sys.exit(main())
