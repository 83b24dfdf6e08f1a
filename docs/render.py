"""Render what the code itself says into the documentation:

    python docs/render.py            # write
    python docs/render.py --check    # name what is out of date, exit 1

- docs/graph.svg and the mermaid block of README.md: the graph of experiments/exp_535b.py;
- docs/reference/cli.md: every flag and subcommand, from the parsers;
- docs/reference/configuration.md: every setting, from the configuration classes.

In a page, what lies between `<!-- rendered: NAME -->` and `<!-- end -->` is replaced.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import enum
import importlib.util
import inspect
import re
import sys
import textwrap
import typing
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

# --- the graph ---


@dataclasses.dataclass(frozen=True)
class Picture:
    """Steps by name, upstream first, with how often the smallest scale calls each; and all arrows between them."""

    counts: dict[str, int]
    arrows: list[tuple[str, str]]


def picture() -> Picture:
    """The graph of the experiment, one node a step function."""
    from marin.execution.planning.plan import planned_steps
    from marin.recipes import scale_named

    spec = importlib.util.spec_from_file_location("exp_535b", ROOT / "experiments" / "exp_535b.py")
    assert spec is not None
    assert spec.loader is not None
    experiment = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(experiment)
    steps, _ = planned_steps([experiment.build(scale_named("smoke"))])
    counts: dict[str, int] = {}
    arrows: dict[tuple[str, str], None] = {}
    for step in steps:
        counts[step.name] = counts.get(step.name, 0) + 1
        arrows.update(dict.fromkeys((up.name, step.name) for up in step.upstream))
    order = sorted(counts, key=lambda name: (depth_of(name, list(arrows)), name))
    return Picture(
        {name: counts[name] for name in order}, sorted(arrows, key=lambda arrow: tuple(map(order.index, arrow)))
    )


def depth_of(name: str, arrows: list[tuple[str, str]]) -> int:
    """The longest way from the start of the graph to a step."""
    return max((depth_of(up, arrows) + 1 for up, down in arrows if down == name), default=0)


def caption(name: str, count: int) -> str:
    """A step as the picture calls it."""
    return f"{name} ×{count}" if count > 1 else name


def mermaid(graph: Picture) -> str:
    """The picture as a mermaid block."""
    names = {name: name.replace("/", "_") for name in graph.counts}
    lines = ["```mermaid", "flowchart TD"]
    lines += [f'    {names[name]}["{caption(name, count)}"]' for name, count in graph.counts.items()]
    lines += [f"    {names[up]} --> {names[name]}" for up, name in graph.arrows]
    return "\n".join([*lines, "```"])


BOX_WIDTH, BOX_HEIGHT, DOWN, SIDE, MARGIN = 180, 32, 26, 200, 12


def svg(graph: Picture) -> str:
    """The picture as SVG: the steps in one column, arrows that pass over others as arcs beside it."""
    row = {name: at for at, name in enumerate(graph.counts)}
    left, right = SIDE, SIDE + BOX_WIDTH
    width, height = right + SIDE, len(row) * (BOX_HEIGHT + DOWN) - DOWN + 2 * MARGIN

    def top(name: str) -> int:
        return MARGIN + row[name] * (BOX_HEIGHT + DOWN)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"',
        ' font-family="sans-serif" font-size="13">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">',
        '<path d="M0 0L8 4L0 8z" fill="#567"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for number, (up, name) in enumerate(graph.arrows):
        skipped = row[name] - row[up]
        if skipped == 1:
            middle = left + BOX_WIDTH // 2
            path = f"M{middle} {top(up) + BOX_HEIGHT}L{middle} {top(name)}"
        else:
            edge, away = (right, 1) if number % 2 else (left, -1)
            out = edge + away * min(SIDE - 10, 24 + 24 * skipped)
            start, end = top(up) + BOX_HEIGHT * 2 // 3, top(name) + BOX_HEIGHT // 3
            path = f"M{edge} {start}C{out} {start} {out} {end} {edge} {end}"
        parts.append(f'<path d="{path}" fill="none" stroke="#567" marker-end="url(#tip)"/>')
    for name, count in graph.counts.items():
        parts.append(
            f'<rect x="{left}" y="{top(name)}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6" fill="#eef4fa" '
            'stroke="#567"/>'
        )
        parts.append(
            f'<text x="{left + BOX_WIDTH // 2}" y="{top(name) + 21}" text-anchor="middle" fill="#123">'
            f"{escape(caption(name, count))}</text>"
        )
    return "\n".join([*parts, "</svg>", ""])


# --- the command line ---


def flags(parser: argparse.ArgumentParser) -> str:
    """A table of a parser's arguments."""
    lines = ["| argument | meaning |", "| --- | --- |"]
    for action in parser._actions:
        if isinstance(action, (argparse._HelpAction, argparse._SubParsersAction)):
            continue
        name = ", ".join(action.option_strings) or str(action.dest)
        if action.choices:
            value = "\\|".join(map(str, action.choices))
        else:
            value = str(action.metavar or action.dest.upper())
        takes = bool(action.option_strings) and action.nargs != 0
        optional = "" if action.option_strings or action.nargs != "?" else " (optional)"
        lines.append(f"| `{name}{f' {value}' if takes else ''}`{optional} | {(action.help or '').replace('|', '/')} |")
    return "\n".join(lines)


def subcommands() -> str:
    """A section for each subcommand of `marin`."""
    from marin.cli.main import build_parser

    found = next(a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction))
    parts = []
    for name, parser in found.choices.items():
        parts.append(
            f"### `marin {name}`\n\n{parser.description[0].upper()}{parser.description[1:]}.\n\n{flags(parser)}"
        )
    return "\n\n".join(parts)


# --- the settings ---


@dataclasses.dataclass(frozen=True)
class Setting:
    """One field of a configuration class, as its source says it."""

    name: str
    type: str
    default: str
    counts: bool
    meaning: str


def settings(cls: type) -> list[Setting]:
    """The fields of a configuration class, with what its docstrings say of them."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    assert isinstance(tree, ast.ClassDef)
    told = attributes(inspect.getdoc(cls) or "")
    found = []
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if not (isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)):
            continue
        name = node.target.id
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
            told[name] = inspect.cleandoc(after.value.value)
        default, counts = default_of(node.value)
        meaning = " ".join(told.get(name, "").replace("``", "`").replace("|", "\\|").split())
        found.append(Setting(name, ast.unparse(node.annotation).replace("|", "\\|"), default, counts, meaning))
    return found


def attributes(docstring: str) -> dict[str, str]:
    """Name and text of each entry under `Attributes:`."""
    _, _, section = docstring.partition("Attributes:\n")
    found: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        entry = re.match(r" {4}(\w+): (.*)", line)
        if entry:
            name = entry[1]
            found[name] = entry[2]
        elif name and line.startswith("     "):
            found[name] += f" {line.strip()}"
        elif line.strip():
            name = ""
    return found


def default_of(node: ast.expr | None) -> tuple[str, bool]:
    """The default as source text ("" where there is none), and whether the field counts for the identity."""
    if not isinstance(node, ast.Call):
        return ("" if node is None else ast.unparse(node)), True
    called = ast.unparse(node.func)
    if called not in ("added", "runtime", "field", "dataclasses.field"):
        return ast.unparse(node), True
    for keyword in node.keywords:
        if keyword.arg == "default_factory":
            made = ast.unparse(keyword.value)
            return {"dict": "{}", "list": "[]"}.get(made, f"{made}()"), called != "runtime"
        if keyword.arg == "default":
            return ast.unparse(keyword.value), called != "runtime"
    if node.args:
        return ast.unparse(node.args[0]), called != "runtime"
    return "", "RUNTIME" not in ast.unparse(node)


def nested(annotation: Any) -> Iterator[tuple[type, str]]:
    """Configuration classes in an annotation, with what to add to the path to get to one."""
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        yield annotation, ""
    suffix = ".N" if typing.get_origin(annotation) is tuple else ""
    for argument in typing.get_args(annotation):
        for cls, rest in nested(argument):
            yield cls, suffix + rest


def configuration() -> str:
    """A table for each configuration class that a scale holds, by its place in the scale."""
    from marin.recipes import Scale

    parts: list[str] = []
    seen: set[type] = set()

    def add(cls: type, path: str) -> None:
        hints = typing.get_type_hints(cls)
        fields = settings(cls)
        if cls is not Scale:
            summary = " ".join((inspect.getdoc(cls) or "").partition("\n\n")[0].replace("``", "`").split())
            lines = [f"## {path}", "", f"`{cls.__name__}`: {summary}", "", "| setting | type | default | meaning |"]
            lines.append("| --- | --- | --- | --- |")
            for one in fields:
                name = f"`{one.name}`" if one.counts else f"`{one.name}` ⚙"
                hint = hints[one.name]
                choice = isinstance(hint, type) and issubclass(hint, enum.Enum)
                kind = ", ".join(f"`{member.name}`" for member in hint) if choice else f"`{one.type}`"
                value = one.default.rpartition(".")[2] if choice else one.default.replace("|", "\\|")
                default = f"`{value}`" if value else "set by the scale"
                lines.append(f"| {name} | {kind} | {default} | {one.meaning} |")
            parts.append("\n".join(lines))
        for one in fields:
            for inner, suffix in nested(hints[one.name]):
                if inner not in seen:
                    seen.add(inner)
                    add(inner, f"{path}.{one.name}{suffix}".lstrip("."))

    add(Scale, "")
    return "\n\n".join(parts)


# --- pages ---


def replaced(text: str, name: str, body: str) -> str:
    """A page with the part of a name set to `body`; `ValueError` when the page has no such part."""
    pattern = re.compile(rf"(<!-- rendered: {re.escape(name)} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"there is no part {name!r}")
    return pattern.sub(lambda found: f"{found[1]}{body}\n{found[2]}", text, count=1)


def rendered() -> dict[Path, str]:
    """Every file that is rendered, with its new content."""
    from marin.cli.experiment import experiment_parser

    graph = picture()
    readme, cli, config = (
        ROOT / "README.md",
        ROOT / "docs" / "reference" / "cli.md",
        ROOT / "docs" / "reference" / "configuration.md",
    )
    commands = replaced(cli.read_text(encoding="utf-8"), "experiment", flags(experiment_parser("laptop")))
    return {
        ROOT / "docs" / "graph.svg": svg(graph),
        readme: replaced(readme.read_text(encoding="utf-8"), "graph", mermaid(graph)),
        cli: replaced(commands, "marin", subcommands()),
        config: replaced(config.read_text(encoding="utf-8"), "settings", configuration()),
    }


def main(arguments: list[str] | None = None) -> int:
    """Write, or with --check compare; exit 1 when something is out of date."""
    parser = argparse.ArgumentParser(prog="docs/render.py", description="render what the code says into the docs")
    parser.add_argument("--check", action="store_true", help="only name what is out of date")
    check = parser.parse_args(arguments).check
    stale = []
    for path, text in rendered().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path)
            if not check:
                path.write_text(text, encoding="utf-8")
    for path in stale:
        print(f"{'out of date' if check else 'written'}: {path.relative_to(ROOT)}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
