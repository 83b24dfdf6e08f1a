"""What every campaign of drivers has: its arguments, its seeded choices, its lines, its verdict."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from marin.execution import Runner, RunOptions, make_plan
from marin.execution.running.inline import InlineBackend
from marin.storage import open_store
from operations.soak import invariants
from operations.soak.graph import GRAPHS, open_ledger


@dataclass
class Round:
    """One turn of a campaign: a fresh folder and prefix, and random choices from the campaign's seed and the turn."""

    number: int
    seed: str
    folder: Path
    prefix: str
    violations: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    @property
    def ledger(self) -> Path:
        """The folder of this round's ledger."""
        return self.folder / "ledger"

    def expect(self, what: bool, otherwise: str) -> None:
        """Keep a violation unless something holds."""
        if not what:
            self.violations.append(otherwise)


@dataclass
class Campaign:
    """Rounds until the time is over or one of them was bad; the folder of a bad round stays, to be looked at.

    Prefixes lie in the folder, or below the address `server`.
    """

    name: str
    seed: int
    minutes: float
    rounds: int | None
    folder: Path
    server: str | None = None
    totals: Counter[str] = field(default_factory=Counter)

    def run(self, play: Callable[[Round], None]) -> int:
        """Play rounds, a line for each and one for the verdict; 1 when a property did not hold."""
        deadline = time.monotonic() + 60 * self.minutes
        number, bad = 0, 0
        while not bad and time.monotonic() < deadline and number != self.rounds:
            number += 1
            folder = self.folder / f"round{number}"
            folder.mkdir(parents=True)
            prefix = f"{self.server}/round{number}" if self.server else str(folder / "prefix")
            one = Round(number, f"{self.seed}/{number}", folder, prefix)
            started = time.monotonic()
            try:
                play(one)
            except Exception as error:
                one.violations.append(f"{type(error).__name__}: {error}")
            bad += bool(one.violations)
            self.totals.update(one.counts)
            line = {
                "campaign": self.name,
                "round": number,
                "seed": one.seed,
                "seconds": round(time.monotonic() - started, 2),
                **one.counts,
                "violations": one.violations,
            }
            print(json.dumps(line), flush=True)
            if one.violations:
                print(json.dumps({"campaign": self.name, "kept": str(one.folder)}), flush=True)
            else:
                shutil.rmtree(one.folder)
        verdict = {"campaign": self.name, "seed": self.seed, "rounds": number, **self.totals, "held": not bad}
        print(json.dumps(verdict), flush=True)
        if not bad:
            shutil.rmtree(self.folder)
        return 1 if bad or not number else 0


def play_campaign(name: str, description: str, play: Callable[[Round], None], arguments: list[str] | None) -> int:
    """A campaign by its command line; its exit code."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--minutes", type=float, default=5.0, help="begin no round after this time")
    parser.add_argument("--rounds", type=int, help="at most so many rounds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where prefixes go, best in memory; default: /tmp")
    parser.add_argument("--emulator", choices=("s3", "gcs"), help="prefixes on a server that speaks S3 or GCS")
    request = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix=f"marin-soak-{name}-", dir=request.folder))
    campaign = Campaign(name, request.seed, request.minutes, request.rounds, folder)
    if not request.emulator:
        return campaign.run(play)
    from tests.storage.emulators import SERVERS, forget_clients

    before = dict(os.environ)
    with SERVERS[request.emulator]() as server:
        os.environ.update(server.environment)
        forget_clients()
        try:
            return replace(campaign, server=server.prefix("soak")).run(play)
        finally:
            os.environ.clear()
            os.environ.update(before)
            forget_clients()


def undisturbed(folder: Path, graph: str, text: str = "one") -> dict[str, str]:
    """What a graph comes to when nothing happens: output digests by step."""
    store = open_store(f"memory://{uuid.uuid4().hex}")
    plan = make_plan([GRAPHS[graph](open_ledger(folder, text))], store)
    result = Runner(store, plan, RunOptions(), InlineBackend).run()
    if not result.succeeded:
        raise RuntimeError(f"the graph {graph} fails without any fault: {result.failures[0].failure}")
    return invariants.outputs(store)


def begun_for_nothing(ledger: Path, disturbed: set[int]) -> Iterator[str]:
    """Work that was begun again although nothing had happened to the process that had it before."""
    last: dict[tuple[str, str], invariants.Note] = {}
    for note in sorted(invariants.notes(ledger), key=lambda note: note.since):
        earlier = last.get((note.step, note.part))
        if earlier is not None and earlier.pid not in disturbed and note.pid not in disturbed:
            yield f"{note.step} {note.part} was begun by {note.pid} after {earlier.pid}, to which nothing had happened"
        last[note.step, note.part] = note
