"""Docstrings of a module, read from its source with ``ast``; nothing is ever imported."""

from __future__ import annotations

import ast
import inspect
import threading
from collections.abc import Iterator
from dataclasses import dataclass

_MAX_SIGNATURE = 400
_PARSING = threading.Lock()
"""CPython 3.11 counts the depth of a syntax tree once for all threads: two that build one at a time can fail."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Entry:
    """A documented function, method or class: its name, signature and docstring."""

    name: str
    signature: str
    doc: str


@dataclass(frozen=True, slots=True)
class ClassDocs:
    """A class with its documented methods."""

    entry: Entry
    methods: tuple[Entry, ...]

    @property
    def size(self) -> int:
        """Characters of documentation."""
        return len(self.entry.doc) + sum(len(method.doc) for method in self.methods)


@dataclass(frozen=True, slots=True)
class ModuleDocs:
    """What one module says about itself."""

    doc: str
    functions: tuple[Entry, ...]
    classes: tuple[ClassDocs, ...]


def module_docs(source: bytes) -> ModuleDocs | None:
    """The documentation in a module's source, or None when the source does not parse."""
    try:
        with _PARSING:
            return _read(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _read(tree: ast.Module) -> ModuleDocs:
    functions = tuple(_function(node, node.name) for node in _documented_functions(tree.body))
    classes = tuple(docs for node in tree.body if isinstance(node, ast.ClassDef) and (docs := _class(node)) is not None)
    return ModuleDocs(doc=_doc(tree), functions=functions, classes=classes)


def _class(node: ast.ClassDef) -> ClassDocs | None:
    methods = tuple(_function(method, f"{node.name}.{method.name}") for method in _documented_functions(node.body))
    doc = _doc(node)
    if node.name.startswith("_") or not (doc or methods):
        return None
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    signature = f"class {node.name}({bases})" if bases else f"class {node.name}"
    return ClassDocs(entry=Entry(name=node.name, signature=_short(signature), doc=doc), methods=methods)


def _documented_functions(body: list[ast.stmt]) -> Iterator[Function]:
    for node in body:
        if isinstance(node, Function) and ast.get_docstring(node, clean=False):
            public = not node.name.startswith("_") or node.name in ("__init__", "__call__")
            if public:
                yield node


def _function(node: Function, name: str) -> Entry:
    returns = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    prefix = "async " if isinstance(node, ast.AsyncFunctionDef) else ""
    return Entry(name=name, signature=_short(f"{prefix}{name}({ast.unparse(node.args)}){returns}"), doc=_doc(node))


def _doc(node: ast.Module | ast.ClassDef | Function) -> str:
    doc = ast.get_docstring(node, clean=False)
    return inspect.cleandoc(doc) if doc else ""


def _short(signature: str) -> str:
    return signature if len(signature) <= _MAX_SIGNATURE else signature[:_MAX_SIGNATURE] + " ..."
