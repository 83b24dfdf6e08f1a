"""One small training run that is killed again and again, and must come out as if nothing had happened.

    unshare -n bash -c 'ip link set lo up; python operations/soak/kills.py --kills 30 --seed 1 --folder /dev/shm'

A Ray cluster of two worker nodes is started on loopback (hence the namespace) and a driver joins it. Each kill draws
whom it strikes (a rank, a node, the driver; or SIGTERM to a rank, as a notice, or to the driver, as an interrupt) and
when (in training, in a save, in a restore, in an evaluation). A driver that is gone is followed by another, a node by a
new one. After each kill every complete checkpoint is read; at the end the curve is laid over that of an undisturbed
run: equal bit for bit where the number of workers stays, to `--tolerance` with `--elastic`, where a node stays away for
a while and one rank goes on alone.

`--data PREFIX` has the smoke scale's tokens already; `--reference PREFIX` also an undisturbed training of that scale.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from marin.cli.experiment import INTERRUPTED
from operations.soak.watched_run import EVALUATION, RESTORE, SAVE
from tests.execution.cluster.nodes import Nodes
from tests.pipeline.running import copy_without, environment, events, records

ROOT = Path(__file__).resolve().parents[2]
TRAINING = "training"
RANK, NODE, DRIVER, NOTICE, INTERRUPT = "rank", "node", "driver", "notice", "interrupt"
PRETRAIN = "model/pretrain"
WHOM = {RANK: 4, NODE: 2, DRIVER: 2, NOTICE: 2, INTERRUPT: 1}
"""Of so many kills, together, those that strike so."""
WHEN = (TRAINING, SAVE, RESTORE, EVALUATION)
PATIENCE_SECONDS = 400.0
"""For the next life to come to the moment that was drawn, on a busy machine."""
PAUSE_SECONDS = 0.05
STEPS_A_KILL = 6
EVERY_STEPS = 2


class Broken(Exception):
    """A property does not hold."""


@dataclass
class Run:
    """The run that is killed: its prefix, its driver, and the nodes that it stands on. `steps` None is the scale's."""

    folder: Path
    data: Path
    steps: int | None
    elastic: bool
    nodes: Nodes
    driver: subprocess.Popen[str] | None = None
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.prefix = self.folder / "prefix"
        self.ledger = self.folder / "ledger"
        self.ledger.mkdir()
        copy_without(self.data, self.prefix, PRETRAIN, "evaluations/report")
        self.before = records(self.prefix)

    @property
    def log(self) -> Path:
        """What all drivers print."""
        return self.folder / "drivers.log"

    def start(self) -> None:
        """Start a driver on the cluster."""
        flags = ("--cluster", self.nodes.address, "--stale-after", "3")
        self.driver = started(self.prefix, self.ledger, self.log, self.steps, self.elastic, *flags)
        self.counts["drivers"] += 1

    def interrupt(self) -> None:
        """SIGTERM to the driver: it lets the ranks save, gives its claim up and says how it ended."""
        assert self.driver is not None
        self.driver.send_signal(signal.SIGTERM)
        code = self.driver.wait(timeout=PATIENCE_SECONDS)
        if code != INTERRUPTED:
            raise Broken(f"the interrupted driver ended with {code}: {tail(self.log)}")
        claims = sorted(self.prefix.glob("_claims/model.pretrain-*/*.json"))
        if not claims[-1].with_suffix(".released").exists():
            raise Broken("the interrupted driver kept its claim")

    def ranks(self) -> list[int]:
        """Processes of this run's ranks."""
        import psutil

        found = []
        for node in self.nodes.workers:
            for pid in self.nodes.workers_of(node):
                try:
                    words = psutil.Process(pid).cmdline()
                except (psutil.NoSuchProcess, psutil.AccessDenied):
                    continue
                if words and words[0].startswith("ray::RankProcess"):
                    found.append(pid)
        return sorted(found)

    def marks(self) -> set[Path]:
        """Finish marks of the run's checkpoints."""
        return set(self.prefix.glob("model/pretrain/*/state/*/checkpoints/step-*/COMPLETE.json"))

    def noted(self, what: str) -> list[int]:
        """Processes that noted something in this life or earlier."""
        return sorted({int(path.name.split(".")[1]) for path in self.ledger.glob(f"{what}.*")})

    def wait_for(self, condition: Callable[[], Any], what: str) -> Any:
        """Look again and again; the driver must not end meanwhile."""
        assert self.driver is not None
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            found = condition()
            if found:
                return found
            if self.driver.poll() is not None:
                raise Broken(f"the driver ended with {self.driver.returncode} before {what}: {tail(self.log)}")
            if time.monotonic() > deadline:
                raise Broken(f"no {what} in {PATIENCE_SECONDS:g} s: {tail(self.log)}")
            time.sleep(0.01)

    def damage(self) -> list[str]:
        """Complete checkpoints that cannot be read as their marks say."""
        found = []
        for mark in sorted(self.marks()):
            try:
                listed = json.loads(mark.read_bytes())["files"]
                for file in listed:
                    data = (mark.parent / file["name"]).read_bytes()
                    if len(data) != file["size"] or hashlib.sha256(data).hexdigest() != file["sha256"]:
                        found.append(f"{mark.parent.name}: {file['name']} has other bytes than the mark says")
            except FileNotFoundError as error:
                if mark.exists():  # an old one that is just being removed loses its mark first
                    found.append(f"{mark.parent.name}: {error.filename} is missing")
        return found


def tail(log: Path) -> str:
    """The end of a log in one line."""
    return " | ".join(log.read_text(errors="replace").splitlines()[-12:])[-1500:]


def started(
    prefix: Path, ledger: Path, log: Path, steps: int | None, elastic: bool, *flags: str
) -> subprocess.Popen[str]:
    """A driver of the training alone."""
    settings: dict[str, Any] = {
        "training.checkpoints.every_steps": EVERY_STEPS,
        "training.checkpoints.keep_last": 3,
        "fleet.workers_per_node": 1,
        "fleet.stop_seconds": 30,
        "fleet.restarts.faults_of_a_node": 1_000_000,
    }
    if steps is not None:
        settings |= {"training.steps": steps, "training.validation.percents": list(range(4, 100, 4))}
        settings |= {"training.validation.sequences": 16}
    if elastic:
        settings |= {
            "fleet.elastic.min_workers": 1,
            "fleet.elastic.patience_seconds": 3,
            "fleet.elastic.interval_seconds": 5,
        }
    words = [word for name, value in settings.items() for word in (f"--{name}", json.dumps(value))]
    command = [sys.executable, str(ROOT / "operations/soak/watched_run.py"), str(ledger), str(PAUSE_SECONDS)]
    scale = ["--scale", "smoke", "--prefix", str(prefix), "--only", PRETRAIN]
    with open(log, "a", encoding="utf-8") as stream:
        return subprocess.Popen(
            [*command, *scale, *words, *flags], stdout=stream, stderr=stream, text=True, env=environment()
        )


def wait_for_moment(run: Run, when: str, dice: random.Random, struck: set[int]) -> int | None:
    """Wait until ranks that are not those that were struck do what was drawn; who does it, where that is known."""

    def fresh() -> list[int]:
        ranks = run.ranks()
        return [] if struck & set(ranks) else ranks

    if when == TRAINING:
        run.wait_for(fresh, "new ranks")
        marks = run.marks()
        run.wait_for(lambda: run.marks() - marks, "checkpoint")
        time.sleep(dice.uniform(0.0, 0.6))
        return None
    pids = run.wait_for(lambda: sorted(set(run.noted(when)) & set(run.ranks()) - struck), when)
    time.sleep(dice.uniform(0.0, 2 * PAUSE_SECONDS))
    return int(pids[0])


def strike(run: Run, whom: str, when: str, dice: random.Random, seen: int | None) -> None:
    """Kill what was drawn, and bring back what does not come back by itself."""
    assert run.driver is not None
    ranks = run.wait_for(run.ranks, "ranks")
    victim = seen if seen in ranks and dice.random() < 0.5 else dice.choice(ranks)
    if whom in (RANK, NOTICE):
        os.kill(victim, signal.SIGTERM if whom == NOTICE else signal.SIGKILL)
    elif whom == DRIVER:
        run.driver.kill()
        run.driver.wait(timeout=30)
        run.start()
    elif whom == INTERRUPT:
        run.interrupt()
        run.start()
    else:
        before = run.marks()
        run.nodes.kill(run.nodes.node_of(victim))
        if run.elastic:  # the other goes on alone for a while
            run.wait_for(lambda: run.marks() - before, "checkpoint of the smaller gang")
        run.nodes.add(1)


def drawn(kills: int, dice: random.Random) -> list[tuple[str, str]]:
    """Whom and when each kill strikes. There is nothing to restore before the first."""
    whom = dice.choices(list(WHOM), weights=list(WHOM.values()), k=kills)
    return [(one, dice.choice(WHEN) if number else TRAINING) for number, one in enumerate(whom)]


def play(run: Run, plan: Sequence[tuple[str, str]], dice: random.Random, minutes: float) -> None:
    """Kill, look, and let the run come to its end. No kill is begun after so many minutes."""
    run.start()
    struck: set[int] = set()
    deadline = time.monotonic() + 60 * minutes
    for number, (whom, when) in enumerate(plan, 1):
        if time.monotonic() > deadline:
            break
        begun = time.monotonic()
        seen = wait_for_moment(run, when, dice, struck)
        steps = max(int(mark.parent.name[5:]) for mark in run.marks()) if run.marks() else 0
        struck |= set(run.ranks()) | {pid for what in (SAVE, RESTORE, EVALUATION) for pid in run.noted(what)}
        strike(run, whom, when, dice, seen)
        damaged = run.damage()
        run.counts.update([f"{whom} in {when}", "kills"])
        line = {"kill": number, "whom": whom, "when": when, "saved step": steps}
        print(json.dumps({**line, "seconds": round(time.monotonic() - begun, 1), "damaged": damaged}), flush=True)
        if damaged:
            raise Broken("; ".join(damaged))
    assert run.driver is not None
    code = run.driver.wait(timeout=4 * PATIENCE_SECONDS)
    if code != 0:
        raise Broken(f"the last driver ended with {code}: {tail(run.log)}")


def curve(prefix: Path) -> list[dict[str, Any]]:
    """The metrics of the finished run, a line a step."""
    (path,) = (prefix / "_steps").glob("model.pretrain-*.json")
    files = {file["name"]: file["key"] for file in json.loads(path.read_text())["files"]}
    return [json.loads(line) for line in (prefix / files["metrics.jsonl"]).read_text().splitlines()]


def validations(prefix: Path) -> list[tuple[int, float]]:
    """Step and held-out loss of every validation."""
    (path,) = (prefix / "_steps").glob("model.pretrain-*.json")
    files = {file["name"]: file["key"] for file in json.loads(path.read_text())["files"]}
    body = json.loads((prefix / files["validation.json"]).read_text())
    return [(line["step"], line["loss"]) for line in body["validations"]]


def compare(run: Run, undisturbed: Path, tolerance: float) -> dict[str, Any]:
    """How the two curves differ; raises `Broken` when they do by more than they may, or when more was done than due."""
    disturbed = run.prefix
    after = records(disturbed)
    if {name: after.get(name) for name in run.before} != run.before:
        raise Broken("a record of an earlier step changed")
    done = [event["step"] for event in events(disturbed) if event["event"] == "step.done"]
    if done != [PRETRAIN]:
        raise Broken(f"steps were done that were done before, or twice: {done}")
    ours, theirs = curve(disturbed), curve(undisturbed)
    steps = len(theirs)
    numbers = [line["step"] for line in ours]
    if numbers != list(range(1, steps + 1)):
        missing = sorted(set(range(1, steps + 1)) - set(numbers))
        doubled = [step for step, count in Counter(numbers).items() if count > 1]
        raise Broken(f"the metrics miss steps {missing[:10]} and double {doubled[:10]}")
    apart = [abs(a["loss"] - b["loss"]) / abs(b["loss"]) for a, b in zip(ours, theirs, strict=True)]
    same = [
        a["loss"] == b["loss"] and a["gradient_norm"] == b["gradient_norm"] for a, b in zip(ours, theirs, strict=True)
    ]
    held, expected = validations(disturbed), validations(undisturbed)
    if [step for step, _ in held] != [step for step, _ in expected]:
        raise Broken(f"validations at {[step for step, _ in held]} instead of {[step for step, _ in expected]}")
    apart += [abs(a - b) / abs(b) for (_, a), (_, b) in zip(held, expected, strict=True)]
    if max(apart) > tolerance:
        raise Broken(f"losses differ by up to {max(apart):.3g} of their size, from step {same.index(False) + 1} on")
    first = same.index(False) + 1 if False in same else None
    return {"steps": len(ours), "validations": len(held), "largest difference": max(apart), "first other step": first}


def prepared(folder: Path, data: Path | None) -> Path:
    """A prefix with the smoke scale's tokens."""
    if data is not None:
        return data
    made = folder / "data"
    command = [sys.executable, str(ROOT / "experiments/exp_535b.py"), "--scale", "smoke", "--prefix", str(made)]
    subprocess.run([*command, "--only", "tokens/"], check=True, env=environment(), stdout=subprocess.DEVNULL)
    return made


def undisturbed_run(folder: Path, data: Path, steps: int | None) -> Path:
    """The prefix of a run to which nothing happens, on Ray of its own."""
    prefix, ledger = folder / "undisturbed", folder / "undisturbed-ledger"
    copy_without(data, prefix, PRETRAIN)
    ledger.mkdir()
    log = folder / "undisturbed.log"
    code = started(prefix, ledger, log, steps, False).wait(timeout=4 * PATIENCE_SECONDS)
    if code != 0:
        raise Broken(f"the undisturbed run ended with {code}: {tail(log)}")
    return prefix


def campaign(request: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The whole campaign in a folder; what it came to."""
    dice = random.Random(f"kills/{request.seed}")
    plan = [tuple(one.split(":")) for one in request.plan.split(",")] if request.plan else drawn(request.kills, dice)
    steps = request.steps or STEPS_A_KILL * len(plan) if request.reference is None else None
    data = request.reference or prepared(folder, request.data)
    reference = request.reference or undisturbed_run(folder, data, steps)
    os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's 15 starves ranks on a machine that does other work too
    nodes = Nodes((1, 1), fixed=False)
    run = Run(folder, data, steps, request.elastic, nodes)
    begun = time.monotonic()
    try:
        play(run, plan, dice, request.minutes)
        found = compare(run, reference, request.tolerance if request.elastic else 0.0)
    finally:
        if run.driver is not None and run.driver.poll() is None:
            run.driver.kill()
            run.driver.wait()
        nodes.shutdown()
    return {**run.counts, **found, "minutes": round((time.monotonic() - begun) / 60, 1)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Play the campaign; a line for each kill, and one for the verdict; 1 when a property did not hold."""
    parser = argparse.ArgumentParser(description="kill one training run again and again")
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no kill after this time")
    parser.add_argument("--steps", type=int, help=f"of the run (default: {STEPS_A_KILL} a kill)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plan", help="whom:when for each kill instead of drawn ones, separated by commas")
    parser.add_argument("--elastic", action="store_true", help="killed nodes stay away while one rank goes on alone")
    parser.add_argument("--tolerance", type=float, default=1e-3, help="largest relative difference of a loss, elastic")
    parser.add_argument("--data", type=Path, help="a prefix that has the smoke scale's tokens; is copied")
    parser.add_argument("--reference", type=Path, help="a prefix that has the smoke scale's training; is copied")
    parser.add_argument("--folder", type=Path, help="where prefixes go, best in memory; default: /tmp")
    request = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="marin-soak-kills-", dir=request.folder))
    verdict: dict[str, Any] = {"campaign": "kills", "seed": request.seed, "elastic": request.elastic}
    try:
        verdict |= campaign(request, folder)
    except Exception as error:
        print(json.dumps({**verdict, "held": False, "violation": str(error), "kept": str(folder)}), flush=True)
        return 1
    print(json.dumps({**verdict, "held": True}), flush=True)
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
