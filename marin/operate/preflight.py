"""`preflight`: before a run that takes a fleet for days, try from every worker what it will need.

On a cluster the workers take the places that the run will take; without one they are processes of this machine.
"""

from __future__ import annotations

import os
import shutil
import statistics
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from marin.execution import Fleet, StepError
from marin.operate.findings import Finding, Level, worst
from marin.operate.regions import across_regions, region_of
from marin.operate.worker_report import Orders, WorkerReport
from marin.storage import Store, StoreError, open_store

FOLDER = "_preflight"
SECONDS = 300.0
"""For all workers together, from the moment they have their places."""
SLOW_STORE = 5e6
"""Bytes per second and worker, below which a run mostly waits for its data and checkpoints."""
SLOW_REPLY = 2.0
"""Seconds of a small write."""
SKEW_TOLD = 2.0
SKEW_REFUSED = 60.0
"""Seconds between clocks. Nothing in a prefix depends on them, but logs and curves become unreadable, and services
refuse signatures that are minutes old.
"""
NAMED = 6
"""Workers that one line names."""


@dataclass(frozen=True)
class Flight:
    """What is to take off: where, on what, and the memory that a worker will need, where it is known."""

    prefix: str
    fleet: Fleet
    cluster: str | None = None
    any_region: bool = False
    needed: Callable[[str], tuple[int, str]] | None = None
    """Bytes that a rank needs at its peak on that type of device (cuda, cpu), and how they are made up."""


def preflight(flight: Flight) -> list[Finding]:
    """Every finding, in the order in which a run would stumble. A `fail` means: do not start."""
    try:
        store = open_store(flight.prefix)
        store.check_writable()
    except StoreError as error:
        return [Finding("store", Level.fail, str(error), "mend that before any run")]
    folder = f"{FOLDER}/{uuid.uuid4().hex}"
    try:
        reports, findings = _reports(flight, store, folder)
    except StepError as error:
        return [Finding("workers", Level.fail, str(error), "mend that, or choose a fleet that is there")]
    finally:
        remove(store, folder)
    findings += judge(reports, flight.fleet.workers)
    findings.append(judge_regions(reports, region_of(store), any_region=flight.any_region))
    if flight.needed is not None:
        findings.append(judge_memory(reports, flight.needed))
    return findings


def remove(store: Store, folder: str) -> None:
    """Leave nothing of the trial, also where workers ended in the middle of it."""
    for info in store.list(folder):
        store.delete(info.key)
    place = store.local_path(f"{folder}/x")
    if place is not None:
        shutil.rmtree(place.parent, ignore_errors=True)


def passed(findings: Sequence[Finding]) -> bool:
    """Whether a run may start."""
    return worst(findings) is not Level.fail


def _reports(flight: Flight, store: Store, folder: str) -> tuple[list[WorkerReport], list[Finding]]:
    """What the workers say, and what was found before they were asked."""
    from marin.execution.running.worker import Failure
    from marin.operate.local_workers import call_on_this_machine
    from marin.operate.worker_checks import examine_worker

    orders = Orders(store, folder)
    findings: list[Finding] = []
    if flight.cluster is None:
        answers = call_on_this_machine(flight.fleet.workers, examine_worker, orders, name="preflight", seconds=SECONDS)
    else:
        answers, findings = _on_cluster(flight, store, orders)
    reports = [answer for answer in answers if isinstance(answer, WorkerReport)]
    for rank, answer in enumerate(answers):
        if isinstance(answer, Failure):
            text = f"rank {rank} on {answer.node or 'its node'}: {answer.error}: {answer.message}"
            findings.append(Finding("workers", Level.fail, text, "mend that worker's environment"))
    return reports, findings


def _on_cluster(flight: Flight, store: Store, orders: Orders) -> tuple[list[object], list[Finding]]:
    """The workers' answers on a Ray cluster, which is joined for that alone, and what all its nodes look like."""
    from marin.execution.cluster.fleet_call import call_on_fleet
    from marin.execution.cluster.nodes import examine
    from marin.execution.cluster.start import joined
    from marin.execution.cluster.versions import versions
    from marin.execution.secrets import store_credentials
    from marin.operate.worker_checks import examine_worker

    local = store.local_path("_")
    with joined(str(flight.cluster), [local.parent] if local is not None else []) as shipment:
        try:
            examine(versions(source=shipment is None), store)
            finding = Finding("nodes", Level.ok, "all nodes have this machine's versions and see the prefix")
        except StepError as error:
            finding = Finding("nodes", Level.fail, str(error), "docs/how-to/cluster.md")
        answers = call_on_fleet(
            flight.fleet,
            store,
            store_credentials(os.environ),
            examine_worker,
            orders,
            name="preflight",
            seconds=SECONDS,
        )
    return answers, [finding]


# --- judging what the workers say ---


def judge(reports: Sequence[WorkerReport], workers: int) -> list[Finding]:
    """Findings on all but region and memory."""
    return [
        judge_store(reports),
        judge_collectives(reports, workers),
        judge_versions(reports),
        judge_clocks(reports),
        judge_leftovers(reports),
        *judge_errors(reports, "leftovers", "memory", "region", "clock"),
    ]


def _named(reports: Sequence[WorkerReport]) -> str:
    shown = ", ".join(f"rank {report.rank} ({report.host})" for report in reports[:NAMED])
    return f"{shown} and {len(reports) - NAMED} more" if len(reports) > NAMED else shown


def judge_store(reports: Sequence[WorkerReport]) -> Finding:
    """Every worker writes, reads and deletes, and does so fast enough."""
    broken = [report for report in reports if report.store is None]
    if broken or not reports:
        why = broken[0].errors.get("store", "no answer") if broken else "no worker answered"
        text = f"{_named(broken)} cannot use the prefix: {why}"
        return Finding("store", Level.fail, text, "give the workers the driver's access, and look at the store")
    speeds = [(report, report.store) for report in reports if report.store is not None]
    write = min(speed.write for _, speed in speeds)
    read = min(speed.read for _, speed in speeds)
    latency = max(speed.latency for _, speed in speeds)
    told = (
        f"{len(speeds)} workers write {write / 1e6:.0f} MB/s and read {read / 1e6:.0f} MB/s at the slowest; a small "
        f"write takes up to {latency * 1e3:.0f} ms"
    )
    slow = [report for report, speed in speeds if min(speed.write, speed.read) < SLOW_STORE]
    if slow or latency > SLOW_REPLY:
        return Finding("store", Level.warn, f"{told}; slow: {_named(slow)}", "use a bucket near the workers")
    return Finding("store", Level.ok, told)


def judge_collectives(reports: Sequence[WorkerReport], workers: int) -> Finding:
    """All workers met, and their sum and their exchange came out right."""
    met = [report for report in reports if report.collectives is not None]
    if len(met) < workers:
        absent = [report for report in reports if report.collectives is None]
        why = absent[0].errors.get("collectives", "no answer") if absent else "some workers gave no answer"
        text = f"{len(met)} of {workers} workers met; {_named(absent)}: {why}"
        return Finding("collectives", Level.fail, text, "open the network between the nodes, or set fleet.interface")
    speeds = [report.collectives for report in met if report.collectives is not None]
    wrong = [report for report in met if report.collectives is not None and not report.collectives.sum_is_right]
    if wrong:
        text = f"a sum or an exchange over all workers came out wrong on {_named(wrong)}"
        return Finding("collectives", Level.fail, text, "take these nodes out: their cards or network are broken")
    reduce = min(speed.all_reduce for speed in speeds) / 1e9
    exchange = min(speed.all_to_all for speed in speeds) / 1e9
    text = f"{speeds[0].backend} sums {reduce:.2f} GB/s and exchanges {exchange:.2f} GB/s a worker at the slowest"
    return Finding("collectives", Level.ok, text)


def judge_versions(reports: Sequence[WorkerReport]) -> Finding:
    """All workers run on the same Python, packages, source, CUDA, NCCL and driver."""
    names = sorted({name for report in reports for name in report.versions})
    problems = []
    for name in names:
        found = Counter(report.versions.get(name, "none") for report in reports)
        if len(found) > 1:
            usual = found.most_common(1)[0][0]
            odd = [report for report in reports if report.versions.get(name, "none") != usual]
            values = ", ".join(sorted({report.versions.get(name, "none") for report in odd}))
            problems.append(f"{name} is {usual} on most workers, and {values} on {_named(odd)}")
    if problems:
        return Finding("versions", Level.fail, "; ".join(problems), "give every node the same environment")
    told = ", ".join(
        f"{name} {reports[0].versions[name]}"
        for name in ("python", "torch", "ray", "marin", "cuda", "nccl", "driver")
        if reports and name in reports[0].versions
    )
    return Finding("versions", Level.ok, f"the same on all workers ({told})")


def judge_clocks(reports: Sequence[WorkerReport]) -> Finding:
    """The workers' clocks agree with each other, and with the store's."""
    clocks = [(report, report.clock) for report in reports if report.clock is not None]
    middle = statistics.median([clock for _, clock in clocks]) if clocks else 0.0
    skews = [(report, clock - middle, "the other workers") for report, clock in clocks]
    skews += [(report, -report.store_clock, "the store") for report in reports if report.store_clock is not None]
    worst_one = max(skews, key=lambda one: abs(one[1]), default=None)
    if worst_one is None:
        return Finding("clocks", Level.warn, "no clock could be compared", "mend what the other lines say first")
    report, skew, than = worst_one
    if abs(skew) < SKEW_TOLD:
        return Finding("clocks", Level.ok, f"within {max(abs(skew), 0.01):.2f} s of each other and of the store's")
    direction = "ahead of" if skew > 0 else "behind"
    text = f"the clock of rank {report.rank} ({report.host}) is {abs(skew):.0f} s {direction} {than}"
    level = Level.fail if abs(skew) >= SKEW_REFUSED else Level.warn
    return Finding("clocks", level, text, "start a time service (chrony, systemd-timesyncd) on that host")


def judge_leftovers(reports: Sequence[WorkerReport]) -> Finding:
    """No earlier run's ranks, and no programs on the GPUs."""
    found = [f"{left} on {report.host}" for report in reports for left in report.leftovers]
    if not found:
        return Finding("leftovers", Level.ok, "no other rank, and no program on a GPU")
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    text = f"{'; '.join(found[:NAMED])}{more}"
    return Finding("leftovers", Level.fail, text, "end them if their run is gone; or wait for it")


def judge_errors(reports: Sequence[WorkerReport], *names: str) -> list[Finding]:
    """Checks that broke off, whose worth is less than a run's."""
    findings = []
    for name in names:
        broken = [report for report in reports if name in report.errors]
        if broken:
            text = f"could not be looked at on {_named(broken)}: {broken[0].errors[name]}"
            findings.append(Finding(name, Level.warn, text, "look at it by hand"))
    return findings


def judge_regions(reports: Sequence[WorkerReport], there: str, *, any_region: bool) -> Finding:
    """Workers and bucket are in one region, as far as that is known."""
    regions = Counter(report.region for report in reports)
    far = sorted(here for here in regions if across_regions(here, there))
    told = ", ".join(
        f"{count} in {region or 'a region that nobody tells'}" for region, count in sorted(regions.items())
    )
    text = f"workers: {told}; prefix: {there or 'no region'}"
    several = len([region for region in regions if region]) > 1
    if (far or several) and not any_region:
        way_out = "use a bucket and nodes of one region, or say that it is meant with --any-region"
        return Finding("regions", Level.fail if far else Level.warn, text, way_out)
    return Finding("regions", Level.ok, text)


def judge_memory(reports: Sequence[WorkerReport], needed: Callable[[str], tuple[int, str]]) -> Finding:
    """What a rank needs at its peak is free on every worker, with a tenth to spare."""
    on_cards = any(report.device != "cpu" for report in reports)
    try:
        peak, made_of = needed("cuda" if on_cards else "cpu")
    except (StepError, ValueError) as error:
        return Finding("memory", Level.fail, str(error), "mend the plan: --training.parallel.…")
    tight = [report for report in reports if report.memory < peak * 1.1]
    least = min((report.memory for report in reports), default=0)
    text = f"a rank needs about {peak / 1e9:.1f} GB ({made_of}); {least / 1e9:.1f} GB are free at the least"
    if not tight:
        return Finding("memory", Level.ok, text)
    fits = all(report.memory >= peak for report in reports)
    way_out = "smaller micro-batches (training.micro_batch_sequences), training.recompute FULL, or more workers"
    return Finding("memory", Level.warn if fits else Level.fail, f"{text}; tight on {_named(tight)}", way_out)
