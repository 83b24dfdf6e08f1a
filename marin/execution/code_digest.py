"""A digest of a step's code that comments, docstrings and formatting do not move.

It covers the function and, transitively, the functions, classes and constants that it names of its own package (for a
script: of the script's folder), found by reading source files, without importing anything. It is recorded and
compared, never hashed into an identity. What is looked up while the program runs (`getattr`, registries filled
elsewhere, methods of objects whose class is never named) is not seen.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import sys
import textwrap
import threading
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from marin.execution.records import Record
    from marin.execution.step import StepFunction

FORMAT = 2
ENGINE = ("marin.execution", "marin.storage")
"""Code that carries steps out; it is no part of what a step does."""
STEP = frozenset({"marin.execution.step", "marin.execution.step.step"})

_PARSING = threading.Lock()
"""CPython 3.11 counts the depth of a syntax tree once for all threads: two that build one at a time can fail."""


@dataclass
class _Uses:
    """What a piece of code refers to: dotted names as they are written, and the imports inside it."""

    names: set[str] = field(default_factory=set)
    imports: list[ast.Import | ast.ImportFrom] = field(default_factory=list)


@dataclass
class _Module:
    """What a module binds at its top level, from its source alone.

    `imports` are dotted names by local name, `known` the digest of a definition's form and the definitions it uses.
    """

    name: str
    place: str
    is_package: bool
    definitions: dict[str, list[ast.stmt]] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)
    stars: list[str] = field(default_factory=list)
    known: dict[str, tuple[str, list[tuple[_Module, str]]]] = field(default_factory=dict)

    def add(self, node: ast.stmt) -> None:
        """Take in a statement of the top level."""
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self.definitions.setdefault(node.name, []).append(node)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self.imports.update(imported(node, self.name, self.is_package))
            if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
                self.stars.append(absolute(node, self.name, self.is_package))
        elif isinstance(node, (ast.If, ast.Try, ast.With, ast.For, ast.While)):
            for part in ("body", "orelse", "finalbody"):
                for inner in getattr(node, part, []):
                    self.add(inner)
            for handler in getattr(node, "handlers", []):
                for inner in handler.body:
                    self.add(inner)
        else:
            for name in bound_names(node):
                if name not in self.imports or isinstance(node, ast.Assign):
                    self.definitions.setdefault(name, []).append(node)


def bound_names(node: ast.stmt) -> list[str]:
    """Names that a statement gives a value to, or changes in place: `A = 1`, `A, B = …`, `A[0] = 1`, `A.add(1)`."""
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        targets = [node.target]
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute):
        targets = [node.value.func]
    else:
        return []
    names = []
    while targets:
        target = targets.pop()
        if isinstance(target, (ast.Tuple, ast.List)):
            targets = targets + target.elts
        elif isinstance(target, (ast.Attribute, ast.Subscript, ast.Starred)):
            targets = [*targets, target.value]
        elif isinstance(target, ast.Name):
            names.append(target.id)
    return names


def absolute(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    """The module that a `from … import` names, relative ones resolved."""
    if node.level == 0:
        return node.module or ""
    parts = module.split(".")
    above = parts[: len(parts) - node.level + is_package]
    return ".".join([*above, *([node.module] if node.module else [])])


def imported(node: ast.Import | ast.ImportFrom, module: str, is_package: bool) -> dict[str, str]:
    """Local name → dotted name of what an import binds."""
    if isinstance(node, ast.ImportFrom):
        origin = absolute(node, module, is_package)
        return {alias.asname or alias.name: f"{origin}.{alias.name}" for alias in node.names if alias.name != "*"}
    return {
        alias.asname or alias.name.partition(".")[0]: alias.name if alias.asname else alias.name.partition(".")[0]
        for alias in node.names
    }


# --- from source to normal form ---


def normal_form(node: ast.AST, is_step: Callable[[ast.expr], bool], out: list[str], uses: _Uses) -> None:
    """Append the tree as text without places, docstrings and `@step`, and note what it uses."""
    out.append(type(node).__name__)
    if isinstance(node, ast.Name):
        out.append(node.id)
        uses.names.add(node.id)
        return
    if isinstance(node, ast.Constant):
        out.append(repr(node.value))
        return
    if isinstance(node, ast.Attribute):
        chain = dotted(node)
        if chain is not None:
            out.append(chain)
            uses.names.add(chain)
            return
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        uses.imports.append(node)
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, ast.AST):
            if not isinstance(value, ast.expr_context):
                normal_form(value, is_step, out, uses)
        elif isinstance(value, list):
            items = [item for item in value if not is_text(item)]
            if name == "decorator_list":
                items = [item for item in items if not is_step(item)]
            elif name == "body" and not items:
                items = [ast.Pass()]  # what stands there when a lone docstring goes
            out.append("[")
            for item in items:
                if isinstance(item, ast.AST):
                    normal_form(item, is_step, out, uses)
                else:
                    out.append(repr(item))
            out.append("]")
        elif name not in ("kind", "type_comment"):
            out.append(repr(value))


def is_text(node: object) -> bool:
    """Whether a statement is a text by itself: a docstring, of a function or of an attribute."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def dotted(node: ast.expr) -> str | None:
    """`a.b.c` of an attribute that begins with a name."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


# --- modules ---


class _Sources:
    """The modules of one package, or of the folder of a script, read as they are needed and never imported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[str, _Module] = {}

    def module(self, name: str) -> _Module | None:
        """A module of this package, or None for any other name."""
        if name.startswith(ENGINE):
            return None
        first, _, rest = name.partition(".")
        below = [rest] if first == self.folder.name else []
        if not (self.folder / "__init__.py").exists():
            below.append(name)
        for one in below:
            path = self.folder.joinpath(*one.split(".")) if one else self.folder
            for file in (path.with_suffix(".py"), path / "__init__.py"):
                if file.is_file():
                    return self.at(file, name)
        return None

    def at(self, file: Path, name: str) -> _Module:
        """The module that lies in a file."""
        place = file.relative_to(self.folder).as_posix()
        if place not in self._read:
            module = _Module(name, place, file.name == "__init__.py")
            for node in ast.parse(file.read_bytes()).body:
                module.add(node)
            self._read[place] = module
        return self._read[place]

    def find(self, path: str) -> list[tuple[_Module, str]]:
        """The modules and the names there that a dotted name means, through re-exports."""
        found: list[tuple[_Module, str]] = []
        pending, seen = [path], {path}
        while pending:
            parts = pending.pop().split(".")
            modules = ((length, self.module(".".join(parts[:length]))) for length in range(len(parts) - 1, 0, -1))
            length, module = next(((length, module) for length, module in modules if module is not None), (0, None))
            if module is None:
                continue
            name, rest = parts[length], parts[length + 1 :]
            if name in module.definitions:
                found.append((module, name))
            origins = [module.imports[name]] if name in module.imports else []
            if not origins and name not in module.definitions:
                origins = [f"{star}.{name}" for star in module.stars]
            fresh = {".".join([origin, *rest]) for origin in origins} - seen
            seen |= fresh
            pending += sorted(fresh)
        return found


@functools.cache
def _sources(folder: Path) -> _Sources:
    return _Sources(folder)


def _own(module: str) -> tuple[_Sources, _Module] | None:
    """The sources that belong to a function's module, and the module itself; None where no file tells them."""
    origin = getattr(sys.modules.get(module), "__file__", None)
    if origin is None or not origin.endswith(".py"):
        return None
    file = Path(origin).resolve()
    folder = file.parent
    while (folder / "__init__.py").exists() and (folder.parent / "__init__.py").exists():
        folder = folder.parent
    sources = _sources(folder)
    place = file.relative_to(folder).with_suffix("").as_posix().replace("/", ".").removesuffix("__init__").rstrip(".")
    return sources, sources.at(file, f"{folder.name}.{place}" if place else folder.name)


# --- digests ---


def code_digest(function: Callable[..., Any]) -> str:
    """`PYTHON/FORMAT:` and 16 hex digits over the code of a function and of what it uses of its own package."""
    with _PARSING:
        return _digest(function)


@functools.cache
def _digest(function: Callable[..., Any]) -> str:
    forms: dict[str, str] = {}
    own = _own(function.__module__)
    if own is None:
        forms[function.__qualname__], _ = _form_by_itself(function, None)
    else:
        _gather(function, *own, forms)
    text = "\n".join(f"{name}\n{forms[name]}" for name in sorted(forms))
    return f"{_comparable_part()}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _gather(function: Callable[..., Any], sources: _Sources, home: _Module, forms: dict[str, str]) -> None:
    """Fill in the forms of a function and of all that it uses of its sources."""
    pending = [(home, function.__qualname__)]
    if function.__qualname__ not in home.definitions:
        forms[function.__qualname__], uses = _form_by_itself(function, home)
        pending = _resolved(uses, home, sources)
    while pending:
        module, name = pending.pop()
        key = f"{module.place}:{name}"
        if key in forms:
            continue
        if name not in module.known:
            form, uses = _form_of(module, module.definitions[name])
            module.known[name] = (hashlib.sha256(form.encode()).hexdigest(), _resolved(uses, module, sources))
        forms[key], below = module.known[name]
        pending += below


def _comparable_part() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}/{FORMAT}"


def _form_of(module: _Module | None, statements: list[ast.stmt]) -> tuple[str, _Uses]:
    def is_step(node: ast.expr) -> bool:
        name = dotted(node.func if isinstance(node, ast.Call) else node)
        first, _, rest = (name or "").partition(".")
        origin = module.imports.get(first, first) if module is not None else first
        return ".".join(filter(None, [origin, rest])) in STEP

    out: list[str] = []
    uses = _Uses()
    for node in statements:
        normal_form(node, is_step, out, uses)
    return " ".join(out), uses


def _resolved(uses: _Uses, module: _Module, sources: _Sources) -> list[tuple[_Module, str]]:
    """The definitions of the package that a piece of a module's code uses."""
    inner: dict[str, str] = {}
    for node in uses.imports:
        inner |= imported(node, module.name, module.is_package)
    found = []
    for name in uses.names:
        first, dot, rest = name.partition(".")
        if first in module.definitions:
            found.append((module, first))
        origins = [origin for origin in (inner.get(first), module.imports.get(first)) if origin is not None]
        if not origins and first not in module.definitions:
            origins = [f"{star}.{first}" for star in module.stars]
        for origin in origins:
            found += sources.find(f"{origin}{dot}{rest}")
    return found


def _form_by_itself(function: Callable[..., Any], module: _Module | None) -> tuple[str, _Uses]:
    """The form of a function that is no definition of its module's top level: an inner one, or one without a file."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        code = getattr(function, "__code__", None)
        return (repr(_code_form(code)) if code is not None else function.__qualname__), _Uses()
    return _form_of(module, tree.body)


def _code_form(code: types.CodeType) -> tuple[Any, ...]:
    """What a compiled function does, where no source tells it."""
    constants = [_code_form(one) if isinstance(one, types.CodeType) else repr(one) for one in code.co_consts[1:]]
    return (code.co_code.hex(), code.co_names, code.co_varnames, constants)


def code_changed(step: StepFunction, record: Record) -> bool:
    """Whether the code of a step is no longer that of a record. Digests of other Pythons are not compared."""
    now, then = code_digest(step.function), record.code_digest
    return now != then and now.partition(":")[0] == then.partition(":")[0]
