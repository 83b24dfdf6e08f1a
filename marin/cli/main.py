"""The `marin` command. Each subcommand imports what it needs when it runs."""

from __future__ import annotations

import sys

from marin.cli.arguments import RUN_ERROR, USAGE_ERROR, OneLineParser, fail, refuse_unknown
from marin.cli.settings import default_cluster, default_prefix


def build_parser() -> OneLineParser:
    """The command line of `marin`."""
    parser = OneLineParser(prog="marin", description="Look at what experiments made.", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=OneLineParser)

    def command(name: str, text: str, *, prefix: bool = True) -> OneLineParser:
        added: OneLineParser = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        if prefix:
            added.add_argument("--prefix", default=default_prefix(), help="where artifacts lie")
        return added

    command("status", "what is done, running, failed")
    show = command("show", "one step: recipe, upstream, evidence, files")
    show.add_argument("step", help="a step's name, name-id, or the start of its id")
    listing = command("ls", "the steps of a prefix, or the files of a step or folder")
    listing.add_argument("what", nargs="?", help="a step as in `marin show`, or a folder of the prefix")
    cat = command("cat", "print a file; parquet as JSON lines")
    cat.add_argument("what", help="a step as in `marin show` with FILE, or a key of the prefix")
    cat.add_argument("file", nargs="?", help="a file of the step")
    cat.add_argument("--limit", type=int, default=20, metavar="ROWS", help="rows of a parquet file (default: 20)")
    config = command("config", "the effective settings of a scale as a file for --config", prefix=False)
    config.add_argument("--scale", default="laptop")
    config.add_argument("--config", metavar="FILE", help="YAML with settings over the scale's")
    model = command("model", "size, cost and steps of a scale's model", prefix=False)
    model.add_argument("--scale", default="laptop")
    browse = command("browse", "a web view of a prefix on this machine")
    browse.add_argument("--port", type=int, default=8321)
    doctor = command("doctor", "check this installation and a prefix")
    doctor.add_argument("--cluster", default=default_cluster(), metavar="ADDRESS", help="the Ray cluster to check")
    return parser


def main(argv: list[str] | None = None) -> None:
    """Entry point of the console script. Exits with 2 for a wrong command line, 1 when something is not there."""
    parser = build_parser()
    known, rest = parser.parse_known_args(argv)
    if known.command is None:
        parser.print_help()
        raise SystemExit(USAGE_ERROR)
    if known.command != "config":
        flags = ["--prefix", "--scale", "--config", "--limit", "--port", "--cluster", "--help"]
        refuse_unknown(rest, flags)
    from marin.execution import StepError
    from marin.storage import StoreError

    try:
        code = run_command(known, rest)
    except BrokenPipeError:
        sys.stderr.close()  # the interpreter would complain there of the standard output that it cannot flush
        code = 0
    except (StepError, StoreError, OSError) as error:
        fail(str(error), RUN_ERROR)
    raise SystemExit(code)


def run_command(known: object, rest: list[str]) -> int:
    """Run a parsed subcommand; returns the exit code."""
    arguments = vars(known)
    name = arguments["command"]
    if name == "config":
        return _config(arguments["scale"], arguments["config"], rest)
    if name == "model":
        return _model(arguments["scale"])
    if name == "browse":
        from marin.browse.server import serve

        serve(arguments["prefix"], arguments["port"])
        return 0
    if name == "doctor":
        return _doctor(arguments["prefix"], arguments["cluster"])
    from marin.cli import inspect_prefix
    from marin.storage import open_store

    store = open_store(arguments["prefix"])
    if name == "status":
        return inspect_prefix.status(store)
    if name == "show":
        return inspect_prefix.show(store, arguments["step"])
    if name == "ls":
        return inspect_prefix.list_things(store, arguments["what"])
    return inspect_prefix.cat(store, arguments["what"], arguments["file"], arguments["limit"])


def _config(scale: str, file: str | None, rest: list[str]) -> int:
    from marin.cli.overrides import effective, to_yaml
    from marin.recipes import scale_named, scale_names

    if scale not in scale_names():
        fail(f"--scale: {scale!r} is none of {', '.join(scale_names())}", USAGE_ERROR)
    sys.stdout.write(to_yaml(effective(scale_named(scale), file, rest, ["--scale", "--config"])))
    return 0


def _model(scale: str) -> int:
    import json

    from marin.recipes import model_names, model_summary

    if scale not in model_names():
        fail(f"--scale: {scale!r} is none of {', '.join(model_names())}", USAGE_ERROR)
    print(json.dumps(model_summary(scale)))
    return 0


def _doctor(prefix: str, cluster: str | None) -> int:
    from marin.operate import Level, doctor, render, worst

    findings = doctor(prefix, cluster)
    print(render(findings))
    return RUN_ERROR if worst(findings) is Level.fail else 0


if __name__ == "__main__":
    main()
