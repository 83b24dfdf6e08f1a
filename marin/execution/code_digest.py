"""A digest of a step's code that comments and formatting do not move.

It covers the function and, transitively, the functions, classes and constants of the same package that it names,
found by reading source files, without importing anything. It is recorded and compared, never hashed into an identity.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Definition = tuple[str, str]

_PARSING = threading.Lock()
"""CPython 3.11 counts the depth of a syntax tree once for all threads: two that build one at a time can fail."""


@functools.cache
def _source_of(module: str) -> str | None:
    loaded = sys.modules.get(module)
    origin = getattr(loaded, "__file__", None)
    if origin is None:
        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, ValueError):
            return None
        origin = spec.origin if spec is not None else None
    if origin is None or not origin.endswith(".py"):
        return None
    return Path(origin).read_text(encoding="utf-8")


class _Module:
    """What a module defines at its top level, and where its imported names come from."""

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.definitions: dict[str, ast.stmt] = {}
        self.imports: dict[str, Definition] = {}
        self.modules: dict[str, str] = {}
        for node in ast.parse(source).body:
            self._add(node)

    def _add(self, node: ast.stmt) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self.definitions[node.name] = node
        elif isinstance(node, ast.Assign):
            self.definitions.update({target.id: node for target in node.targets if isinstance(target, ast.Name)})
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            self.definitions[node.target.id] = node
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            self.imports.update(imported_names(node))
        elif isinstance(node, ast.Import):
            self.modules.update(imported_modules(node))
        elif isinstance(node, ast.If):
            for inner in node.body:
                self._add(inner)


def imported_names(node: ast.ImportFrom) -> dict[str, Definition]:
    """Local name → (module, name there) of a `from … import …`."""
    return {alias.asname or alias.name: (str(node.module), alias.name) for alias in node.names}


def imported_modules(node: ast.Import) -> dict[str, str]:
    """Local name → module of an `import … as …`, or of an undotted `import …`."""
    return {alias.asname or alias.name: alias.name for alias in node.names if alias.asname or "." not in alias.name}


@functools.cache
def _module(name: str) -> _Module | None:
    source = _source_of(name)
    return _Module(name, source) if source is not None else None


class _Normalise(ast.NodeTransformer):
    """Drops docstrings and decorators."""

    def _strip(self, node: Any) -> Any:
        self.generic_visit(node)
        body = node.body
        first = body[0] if body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            node.body = body[1:] or [ast.Pass()]
        if not isinstance(node, ast.ClassDef):
            node.decorator_list = []
        return node

    visit_FunctionDef = _strip
    visit_AsyncFunctionDef = _strip
    visit_ClassDef = _strip


def _normal_form(node: ast.stmt) -> str:
    copy = ast.parse(ast.unparse(node)).body[0]
    return ast.dump(_Normalise().visit(copy), annotate_fields=False)


def _named(module: _Module, node: ast.stmt, package: str) -> Iterator[Definition]:
    """Definitions of the package that a definition names."""
    imports = dict(module.imports)
    modules = dict(module.modules)
    for inner in ast.walk(node):
        if isinstance(inner, ast.ImportFrom) and inner.module and inner.level == 0:
            imports.update(imported_names(inner))
        elif isinstance(inner, ast.Import):
            modules.update(imported_modules(inner))
    imports = {name: target for name, target in imports.items() if target[0].partition(".")[0] == package}
    modules = {name: target for name, target in modules.items() if target.partition(".")[0] == package}
    modules |= {name: ".".join(target) for name, target in imports.items() if _resolve(target) is None}
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id in modules:
            yield modules[inner.value.id], inner.attr
        if not isinstance(inner, ast.Name):
            continue
        if inner.id in imports:
            yield imports[inner.id]
        elif inner.id in module.definitions:
            yield module.name, inner.id


def _resolve(definition: Definition, depth: int = 0) -> tuple[_Module, ast.stmt] | None:
    """The defining statement, through re-exports."""
    module = _module(definition[0])
    if module is None or depth > 8:
        return None
    if definition[1] in module.definitions:
        return module, module.definitions[definition[1]]
    if definition[1] in module.imports:
        return _resolve(module.imports[definition[1]], depth + 1)
    return None


def code_digest(function: Callable[..., Any]) -> str:
    """16 hex digits over the code of a function and of what it uses of its own package."""
    with _PARSING:
        return _digest(function)


@functools.cache
def _digest(function: Callable[..., Any]) -> str:
    module_name = function.__module__
    package = module_name.partition(".")[0]
    execution = f"{__package__}"
    start: Definition = (module_name, function.__qualname__)
    forms: dict[str, str] = {}
    pending = [start]
    seen: set[Definition] = set()
    while pending:
        definition = pending.pop()
        if definition in seen:
            continue
        seen.add(definition)
        found = _resolve(definition)
        if found is None or found[0].name.startswith((execution, "marin.storage")):
            continue
        module, node = found
        forms[f"{module.name}:{definition[1]}"] = _normal_form(node)
        pending.extend(_named(module, node, package))
    if not forms:
        try:
            source = inspect.getsource(function)
        except (OSError, TypeError):
            source = function.__qualname__
        forms[f"{module_name}:{function.__qualname__}"] = source
    text = "\n".join(f"{name}\n{forms[name]}" for name in sorted(forms))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return f"{version}:{hashlib.sha256(text.encode()).hexdigest()[:16]}"
