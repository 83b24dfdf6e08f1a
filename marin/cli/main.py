"""The `marin` command. Each subcommand imports what it needs when it runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from marin.cli.arguments import RUN_ERROR, USAGE_ERROR, OneLineParser, fail, refuse_unknown
from marin.cli.settings import default_cluster, default_prefix

LIFECYCLE = ("verify", "gc", "pin", "unpin", "pins", "tombstone", "adopt", "copy")
"""Commands that check, keep, bring in and remove what runs made."""
WITH_SETTINGS = ("config", "model", "preflight", "training-job", "evaluate-checkpoints")
"""Commands that take settings of a scale as flags."""
WATCHING = ("watch", "alerts", "profile-diff")
"""Commands that look at a training run."""


def build_parser() -> OneLineParser:
    """The command line of `marin`."""
    parser = OneLineParser(
        prog="marin", description="Look at what experiments made, and look after it.", allow_abbrev=False
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=OneLineParser)

    def command(name: str, text: str, *, prefix: bool = True) -> OneLineParser:
        added: OneLineParser = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        if prefix:
            added.add_argument("--prefix", default=default_prefix(), help="where artifacts lie")
        return added

    status = command("status", "what is done, running, waiting, failed and blocked")
    status.add_argument("run", nargs="?", help="one run: its name, or the start or end of it")
    status.add_argument("--all", action="store_true", help="every step by itself, and every failure")
    explain = command("explain", "why a step was run, or why it is not there")
    explain.add_argument("step", help="a step as in `marin show`, also one that failed or has not run")
    diff = command("diff", "two steps, or two generations of one, side by side")
    diff.add_argument("step", help="a step as in `marin show`, or STEP@N for its generation N")
    diff.add_argument("other", nargs="?", help="the other; may be left out when the first means exactly two")
    diff.add_argument("--all", action="store_true", help="every difference and every file")
    show = command("show", "one step: recipe, upstream, evidence, files")
    show.add_argument("step", help="a step's name, label, name-id, or the start of its id; STEP@N for a generation")
    listing = command("ls", "the steps of a prefix, or the files of a step or folder")
    listing.add_argument("what", nargs="?", help="a step as in `marin show`, or a folder of the prefix")
    cat = command("cat", "print a file; parquet as JSON lines")
    cat.add_argument("what", help="a step as in `marin show` with FILE, or a key of the prefix")
    cat.add_argument("file", nargs="?", help="a file of the step")
    cat.add_argument("--limit", type=int, default=20, metavar="ROWS", help="rows of a parquet file (default: 20)")
    documents = command("documents", "where a document came from, and what became of it")
    documents.add_argument("action", choices=["find"], help="what to do")
    documents.add_argument("what", metavar="ID|URL", help="a document's id, or the URL that it was found under")
    documents.add_argument("--all", action="store_true", help="everything of every place where it lies")
    config = command("config", "the effective settings of a scale as a file for --config", prefix=False)
    config.add_argument("--scale", default="laptop")
    config.add_argument("--config", metavar="FILE", help="YAML with settings over the scale's")
    mixture = command("mixture", "a published table of cells as the mixture settings of a --config file", prefix=False)
    mixture.add_argument("file", metavar="FILE", help="JSON: available_tokens, phase_budgets, phase0_weights …")
    mixture.add_argument("--max-epochs", type=float, metavar="N", help="no cell more often than this over the budgets")
    job = command("training-job", "an experiment's training step as a file for torchrun -m marin.training")
    job.add_argument("experiment", metavar="EXPERIMENT", help="the experiment's Python file")
    job.add_argument("--scale", default="laptop")
    job.add_argument("--config", metavar="FILE", help="YAML with settings over the scale's")
    job.add_argument("--step", metavar="REGEX", help="which one, where the experiment has several")
    during = command(
        "evaluate-checkpoints", "an experiment's evaluation on the permanent checkpoints of its run so far"
    )
    during.add_argument("experiment", metavar="EXPERIMENT", help="the experiment's Python file")
    during.add_argument("--scale", default="laptop")
    during.add_argument("--config", metavar="FILE", help="YAML with settings over the scale's")
    during.add_argument("--step", metavar="REGEX", help="which training step, where the experiment has several")
    during.add_argument("--watch", type=float, metavar="SECONDS", help="look again so often, until the run has ended")
    during.add_argument("--cluster", default=default_cluster(), metavar="ADDRESS", help="join this Ray cluster")
    model = command(
        "model", "size, cost and steps of a scale's model; with --gpus also the memory of a rank", prefix=False
    )
    model.add_argument("--scale", default="laptop")
    model.add_argument(
        "--gpus",
        type=int,
        metavar="N",
        help="ranks, for the bytes on the fullest; settings of the training may follow, such as --parallel.ep 32",
    )
    model.add_argument("--accelerator", metavar="CARD", help="the card, as Ray calls it (default: the fleet's)")
    model.add_argument("--memory-gb", type=float, metavar="GB", help="what a card has, in 10^9 bytes")
    model.add_argument(
        "--imbalance",
        type=float,
        default=1.0,
        metavar="X",
        help="rows that the busiest rank's experts get, over an even share (default: 1)",
    )
    _add_watching(command)
    browse = command("browse", "a web view of a prefix on this machine")
    browse.add_argument("--port", type=int, default=8321)
    doctor = command("doctor", "check this installation and a prefix")
    doctor.add_argument("--cluster", default=default_cluster(), metavar="ADDRESS", help="the Ray cluster to check")
    ready = command("preflight", "try from every worker of a scale's fleet what its training will need")
    ready.add_argument("--scale", default="laptop")
    ready.add_argument("--config", metavar="FILE", help="YAML with settings over the scale's")
    ready.add_argument("--cluster", default=default_cluster(), metavar="ADDRESS", help="the Ray cluster to try")
    ready.add_argument("--any-region", action="store_true", help="workers and prefix may be in different regions")
    ready.add_argument("--json", action="store_true", help="findings as JSON")
    _add_lifecycle(command)
    return parser


def _add_watching(command: Callable[[str, str], OneLineParser]) -> None:
    """The parsers of `WATCHING`."""
    watch = command("watch", "how a training run stands: newest step, checkpoint, evaluation, alerts, stalls")
    watch.add_argument(
        "what", nargs="?", default="model/pretrain", help="the folder of a step, or one above it (default: %(default)s)"
    )
    watch.add_argument("--every", type=float, metavar="SECONDS", help="again and again, until interrupted")
    watch.add_argument("--tensorboard", metavar="FOLDER", help="and write the curves so far to a local folder")
    alerts = command("alerts", "every alert that the metrics of a training run give")
    alerts.add_argument(
        "what", metavar="FILE|STEP", help="a file of metrics lines, or a training step, also unfinished"
    )
    alerts.add_argument("--rules", metavar="FILE", help="other rules than those of operations/alerts.yaml")
    profiles = command("profile-diff", "what changed between two profiled windows of training")
    profiles.add_argument("before", help="a summary.json, or the folder of a step, for its newest")
    profiles.add_argument("after", help="the other")


def _add_lifecycle(command: Callable[[str, str], OneLineParser]) -> None:
    """The parsers of `LIFECYCLE`."""
    verify = command("verify", "compare files with their records")
    verify.add_argument("step", nargs="?", help="a step as in `marin show`; all steps of the prefix without one")
    verify.add_argument("--sizes", action="store_true", help="compare sizes only; read no file")
    verify.add_argument("--upstream", action="store_true", help="and everything that the step was made from")
    gc = command("gc", "what no run, pin or experiment needs; removes it with --delete")
    gc.add_argument(
        "--experiment",
        action="append",
        default=[],
        metavar="FILE[:SCALE]",
        help="keep what this experiment plans, at one scale or at all; may be given several times",
    )
    gc.add_argument(
        "--keep-days", type=float, default=14.0, metavar="N", help="keep runs of the last days (default: 14)"
    )
    gc.add_argument(
        "--grace-hours",
        type=float,
        default=24.0,
        metavar="N",
        help="keep what no record lists for so long after its last sign of life (default: 24)",
    )
    gc.add_argument("--delete", action="store_true", help="remove it; without this it is only listed")
    pin = command("pin", "keep a run or a step, whatever else goes")
    pin.add_argument("what", help="a run, or a step as in `marin show`")
    pin.add_argument("--note", default="", metavar="TEXT", help="why, for those who read it later")
    unpin = command("unpin", "take a pin off")
    unpin.add_argument("what", help="a run or a step, as `marin pins` names it")
    command("pins", "what is pinned")
    tombstone = command("tombstone", "remove the files of a step and keep its record")
    tombstone.add_argument("step", help="a step as in `marin show`")
    tombstone.add_argument("--note", default="", metavar="TEXT", help="why, for those who read it later")
    tombstone.add_argument("--yes", action="store_true", help="remove them; without this they are only counted")
    adopt = command("adopt", "register files that exist as a finished step")
    adopt.add_argument("path", help="a file, or a folder with all below it; inside the prefix it stays where it is")
    adopt.add_argument("--name", required=True, help="the step's name, such as documents/mine")
    adopt.add_argument("--version", required=True, help="what the name stands for: a release, a date")
    adopt.add_argument("--type", required=True, metavar="MODULE:CLASS", help="the class of the artifact")
    adopt.add_argument("--result", metavar="JSON|@FILE", help="the artifact's fields, where the class cannot tell them")
    copy = command("copy", "bring a finished step from another prefix here")
    copy.add_argument("step", help="a step of the other prefix, as in `marin show`")
    copy.add_argument("--from", dest="source", required=True, metavar="URL", help="the other prefix")
    copy.add_argument(
        "--budget", type=float, default=10.0, metavar="GB", help="copy nothing when it is more than this (default: 10)"
    )


def main(argv: list[str] | None = None) -> None:
    """Entry point of the console script. Exits with 2 for a wrong command line, 1 when something is not there."""
    parser = build_parser()
    known, rest = parser.parse_known_args(argv)
    if known.command is None:
        parser.print_help()
        raise SystemExit(USAGE_ERROR)
    if known.command not in WITH_SETTINGS:
        refuse_unknown(rest, parser.command(known.command).flags())
    from marin.execution import StepError
    from marin.storage import InvalidPrefix, StoreError

    try:
        code = run_command(known, rest)
    except BrokenPipeError:
        sys.stderr.close()  # the interpreter would complain there of the standard output that it cannot flush
        code = 0
    except InvalidPrefix as error:
        fail(str(error), USAGE_ERROR)
    except (StepError, StoreError, OSError) as error:
        fail(str(error), RUN_ERROR)
    raise SystemExit(code)


def run_command(known: object, rest: list[str]) -> int:
    """Run a parsed subcommand; returns the exit code."""
    arguments = vars(known)
    name = arguments["command"]
    if name == "config":
        return _config(arguments["scale"], arguments["config"], rest)
    if name == "mixture":
        from marin.cli import mixture

        return mixture.run(arguments["file"], arguments["max_epochs"])
    if name == "training-job":
        from marin.cli import training_job

        return training_job.run(arguments, rest, build_parser().command(name).flags())
    if name == "evaluate-checkpoints":
        from marin.cli import evaluate_checkpoints

        return evaluate_checkpoints.run(arguments, rest, build_parser().command(name).flags())
    if name == "model":
        from marin.cli import model

        return model.run(arguments, rest)
    if name == "browse":
        from marin.browse.server import serve

        serve(arguments["prefix"], arguments["port"])
        return 0
    if name == "doctor":
        return _doctor(arguments["prefix"], arguments["cluster"])
    if name == "preflight":
        return _preflight(arguments, rest)
    if name in WATCHING:
        return _watching(name, arguments)
    if name in LIFECYCLE:
        from marin.cli import lifecycle

        return lifecycle.run(name, arguments)
    if name == "documents":
        from marin.cli.documents import find
        from marin.storage import open_store

        return find(open_store(arguments["prefix"]), arguments["what"], everything=arguments["all"])
    from marin.cli import inspection

    return inspection.run(name, arguments)


def _config(scale: str, file: str | None, rest: list[str]) -> int:
    from marin.cli.overrides import effective, to_yaml
    from marin.recipes import scale_named, scale_names

    if scale not in scale_names():
        fail(f"--scale: {scale!r} is none of {', '.join(scale_names())}", USAGE_ERROR)
    sys.stdout.write(to_yaml(effective(scale_named(scale), file, rest, ["--scale", "--config"])))
    return 0


def _preflight(arguments: dict[str, Any], rest: list[str]) -> int:
    from marin.cli import preflight

    return preflight.run(
        arguments["scale"],
        arguments["config"],
        rest,
        build_parser().command("preflight").flags(),
        arguments["prefix"],
        arguments["cluster"],
        any_region=arguments["any_region"],
        json_wanted=arguments["json"],
    )


def _watching(name: str, arguments: Mapping[str, Any]) -> int:
    from marin.cli import watching
    from marin.storage import open_store

    store = open_store(arguments["prefix"])
    if name == "watch":
        return watching.watch(store, arguments["what"], arguments["every"], arguments["tensorboard"])
    if name == "alerts":
        return watching.alerts(store, arguments["what"], arguments["rules"])
    return watching.profile_diff(store, arguments["before"], arguments["after"])


def _doctor(prefix: str, cluster: str | None) -> int:
    from marin.operate import Level, doctor, render, worst

    findings = doctor(prefix, cluster)
    print(render(findings))
    return RUN_ERROR if worst(findings) is Level.fail else 0


if __name__ == "__main__":
    main()
