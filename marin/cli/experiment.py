"""`experiment_main`: what `python experiments/NAME.py` does with a command line."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from marin.cli.arguments import RUN_ERROR, USAGE_ERROR, OneLineParser, fail
from marin.cli.overrides import effective, to_yaml
from marin.cli.settings import default_cluster, default_prefix
from marin.execution import (
    Action,
    Artifact,
    Plan,
    PlannedStep,
    Runner,
    RunOptions,
    RunResult,
    Status,
    StepError,
    UnstableValue,
    WrongPattern,
    layout,
    make_plan,
)
from marin.execution.running.patience import PatientStore
from marin.recipes import Scale, scale_named, scale_names
from marin.storage import CountedStore, Store, StoreError, open_store

if TYPE_CHECKING:
    from marin.execution.running.inline import Backend

INTERRUPTED = 130
CLUSTER_CONCURRENCY = 32
PLANNING_PATIENCE_SECONDS = 60.0
"""How long a store may give no answer, beyond what its client waits, while nothing runs yet."""


@dataclass(frozen=True)
class Request:
    """A parsed command line."""

    scale: Scale
    prefix: str
    dry_run: bool
    only: str | None
    force: str | None
    max_concurrent: int
    stale_after: float
    fail_fast: bool
    cluster: str | None
    verify: bool
    code: str
    also_read: tuple[str, ...]
    preflight: bool


def experiment_parser(default: str) -> OneLineParser:
    """The flags of every experiment."""
    parser = OneLineParser(
        description="Run an experiment's graph of steps; what is done already is skipped.",
        epilog="Every setting of the scale is a flag too, such as --training.steps 50; `marin config` prints them all.",
        allow_abbrev=False,
    )
    parser.add_argument("--scale", choices=scale_names(), default=default, help=f"size of the run (default: {default})")
    parser.add_argument("--prefix", default=default_prefix(), help="where artifacts lie: a folder, gs://…, s3://…")
    parser.add_argument("--dry-run", action="store_true", help="print what would run, and why; write nothing")
    parser.add_argument("--only", metavar="REGEX", help="run only the matching steps, and what they need")
    parser.add_argument("--force", metavar="REGEX", help="redo the matching steps although they are done")
    parser.add_argument(
        "--max-concurrent",
        type=int,
        metavar="N",
        help=f"steps at the same time (default: one a processor here, {CLUSTER_CONCURRENCY} on a cluster)",
    )
    parser.add_argument("--cluster", default=default_cluster(), metavar="ADDRESS", help="join this Ray cluster")
    parser.add_argument(
        "--verify",
        action="store_true",
        help="compare cached outputs with their recorded digests; redo what is damaged",
    )
    parser.add_argument(
        "--code",
        choices=("warn", "strict", "ignore"),
        default="warn",
        help="when a cached step's code is not what made its record: say so, refuse to run, or say nothing",
    )
    parser.add_argument(
        "--also-read",
        action="append",
        default=[],
        metavar="URL",
        help="another prefix, whose finished steps are used from where they lie; may be given several times",
    )
    parser.add_argument("--config", metavar="FILE", help="YAML with settings over the scale's")
    parser.add_argument(
        "--preflight",
        action="store_true",
        help="before anything runs, try from every worker of the fleet what training will need; refuse on a failure",
    )
    parser.add_argument("--fail-fast", action="store_true", help="start nothing more after the first failure")
    parser.add_argument(
        "--stale-after",
        type=float,
        default=90.0,
        metavar="SECONDS",
        help="take a step over when its holder on another machine was silent for so long (default: 90)",
    )
    return parser


def parse(argv: list[str] | None, default: str) -> Request:
    """Read a command line; exits with 2 and one line when it is wrong."""
    parser = experiment_parser(default)
    known, rest = parser.parse_known_args(argv)
    if not known.prefix.strip():
        fail("--prefix is empty; name a folder or a bucket", USAGE_ERROR)
    try:
        base = scale_named(known.scale)
    except ValueError as error:
        fail(f"the scale {known.scale!r} cannot be set up here: {error}", RUN_ERROR)
    scale = effective(base, known.config, rest, parser.flags())
    return Request(
        scale,
        known.prefix,
        known.dry_run,
        known.only,
        known.force,
        known.max_concurrent if known.max_concurrent is not None else default_concurrency(known.cluster),
        known.stale_after,
        known.fail_fast,
        known.cluster,
        known.verify,
        known.code,
        tuple(known.also_read),
        known.preflight,
    )


def default_concurrency(cluster: str | None) -> int:
    """Steps at the same time: each needs a process, which on this machine is dear."""
    return CLUSTER_CONCURRENCY if cluster is not None else max(2, os.cpu_count() or 1)


def experiment_main(build: Callable[[Scale], Artifact], default: str, argv: list[str] | None = None) -> None:
    """Parse the command line, plan the graph that `build` makes of the scale, run it, and print its result.

    Exits with 0 when everything is there, 1 when a step failed, 2 for a wrong command line or config, 130 after
    Ctrl-C.
    """
    request = parse(argv, default)
    try:
        code = carry_out(build, request)
    except (StepError, StoreError, OSError) as error:
        fail(str(error), RUN_ERROR)
    except KeyboardInterrupt:
        fail("interrupted", INTERRUPTED)
    if code:
        raise SystemExit(code)


def carry_out(build: Callable[[Scale], Artifact], request: Request) -> int:
    """Plan, and run or print what was asked for; returns the exit code. Exits with 2 for what is wrongly asked."""
    try:
        options = RunOptions(request.max_concurrent, request.stale_after, request.fail_fast)
        target = build(request.scale)
        store = CountedStore(open_store(request.prefix))
        patient = PatientStore(store, threading.Event(), PLANNING_PATIENCE_SECONDS)
        plan = plan_for([target], patient, request)
    except (ValueError, UnstableValue, WrongPattern) as error:
        fail(str(error), USAGE_ERROR)
    except (StoreError, OSError) as error:
        fail(f"the prefix {request.prefix} cannot be read: {error}", RUN_ERROR)
    if request.code == "strict":
        refuse_changed_code(plan, patient)
    if request.dry_run:
        show_plan(plan, patient, check_code=request.code != "ignore")
        return 0
    if request.preflight and any(step.call.fleet is not None for step in plan.to_do()):
        from marin.cli.preflight import gate

        if not gate(request.scale, request.prefix, request.cluster):
            fail("the preflight found what must be mended first; nothing was run", RUN_ERROR)
    if plan.to_do():
        code = run_plan(plan, store, request, options)
        if code:
            return code
    else:
        cached = sum(step.action is Action.cached for step in plan.steps)
        print(f"nothing to do: {cached} of {len(plan.steps)} steps are cached in {store.url}")
    for step in plan.targets:
        present(step, patient)
    if request.code == "warn":
        warn_of_changed_code(plan, store)
    return 0


def plan_for(targets: list[Artifact], store: Store, request: Request) -> Plan:
    """The plan that a command line asks for."""
    verify = None
    if request.verify:
        from marin.execution.upkeep.verify import reasons_to_redo

        verify = reasons_to_redo
    others = [other_prefix(url) for url in request.also_read]
    return make_plan(targets, store, only=request.only, force=request.force, verify=verify, also_read=others)


def other_prefix(url: str) -> Store:
    """The store of another prefix that is to be read too; `ValueError` when no finished step lies there."""
    store = open_store(url)
    if not any(store.pages(layout.RECORDS)):
        raise ValueError(f"--also-read {url}: no finished step lies there; is the address right?")
    return store


def refuse_changed_code(plan: Plan, store: Store) -> None:
    """Exit when cached steps were made by other code; reads the record of every cached step."""
    from marin.execution.reasons.explain import note_changed_code

    changed = note_changed_code(plan, store)
    if changed:
        names = ", ".join(step.display for step in changed)
        fail(
            f"--code strict: the code of {names} is not what made their records; bump their versions if results "
            "differ, redo them with --force, or leave it at a warning with --code warn",
            RUN_ERROR,
        )


def warn_of_changed_code(plan: Plan, store: Store) -> None:
    """Say which of the records that this run has read were made by other code. Reads nothing more."""
    from marin.execution.reasons.explain import note_changed_code

    for step in note_changed_code(plan, store, read=False):
        print(f"{step.display}: cached ({step.reason})")


def show_plan(plan: Plan, store: Store, *, check_code: bool = True) -> None:
    """Print each step: name, identity, path, and whether and why it will run."""
    from marin.execution.reasons.explain import explain, note_changed_code

    explain(plan, store)
    if check_code:
        note_changed_code(plan, store)
    for step in plan.steps:
        reason = f" ({step.reason})" if step.reason and step.action is Action.cached else ""
        reason = reason or (f": {step.reason}" if step.reason else "")
        place = (step.store or store).url_of(step.record.path if step.store and step.record else step.folder)
        print(f"{step.display:<44} {step.identity[:16]}  {place}  {step.action.value}{reason}")
    counts = {action: sum(step.action is action for step in plan.steps) for action in Action}
    print(", ".join(f"{count} {action.value}" for action, count in counts.items() if count) or "no steps")


def run_plan(plan: Plan, store: Store, request: Request, options: RunOptions) -> int:
    """Run a plan with a console; returns the exit code."""
    from dataclasses import replace

    from marin.execution.reasons.explain import explain
    from marin.execution.running.console import console_for

    explain(plan, store)
    config = to_yaml(request.scale).encode()
    options = replace(options, attachments={"config.yaml": config})
    console = console_for(sys.stdout)

    def backend() -> Backend:
        console.note(
            f"joining the Ray cluster at {request.cluster}" if request.cluster else "starting Ray on this machine"
        )
        return start_backend(plan, store, request.cluster)

    previous = {number: signal.signal(number, _interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        result = Runner(store, plan, options, backend, console).run()
    finally:
        console.close()
        for number, handler in previous.items():
            signal.signal(number, handler)
    return report_result(result, store)


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def start_backend(plan: Plan, store: Store, cluster: str | None) -> Backend:
    """Ray: the cluster of an address, or one embedded in this process with room for the plan's gangs."""
    from marin.execution.cluster.backend import RayBackend

    return RayBackend(cluster, cpus=embedded_cpus(plan.to_do()), store=store)


def embedded_cpus(steps: list[PlannedStep]) -> float:
    """Processors that embedded Ray hands out, so that the largest gang of a plan fits."""
    gangs = [step.call.fleet for step in steps if step.call.fleet is not None]
    return max([2.0, *(fleet.workers * fleet.cpus_per_worker for fleet in gangs)])


def report_result(result: RunResult, store: Store) -> int:
    """Print how a run ended when it did not succeed; returns the exit code."""
    if result.succeeded:
        return 0
    for progress in result.failures:
        failure = progress.failure
        if failure is None:
            continue
        print(f"\nfailed: {progress.step.display}: {failure.error}: {failure.message}", file=sys.stderr)
        for cause in failure.causes:
            print(f"  from {cause}", file=sys.stderr)
        if not failure.expected:
            folder = layout.failure_folder(progress.step.name, progress.step.identity)
            print(f"  traceback: {store.url_of(folder)}", file=sys.stderr)
    blocked = [progress.step.display for progress in result.steps if progress.status is Status.blocked]
    if blocked:
        print(f"blocked: {', '.join(blocked)}", file=sys.stderr)
    print(f"run {result.run}; log and events: {store.url_of(layout.run_folder(result.run))}", file=sys.stderr)
    if result.interrupted:
        print("interrupted; run the same command again to go on", file=sys.stderr)
        return INTERRUPTED
    return RUN_ERROR


def present(step: PlannedStep, store: Store) -> None:
    """Print the result of a target from its record."""
    from rich.console import Console

    from marin.execution.planning.plan import record_of
    from marin.execution.records import materialise_record

    record = record_of(step, store)
    home = step.store or store
    artifact = materialise_record(home, record, step.call.step.result_type)
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    shown = artifact.present({"this result": home.url_of(record.path), "everything": home.url})
    console.print(shown, markup=False)  # a text is shown as it is, brackets too
