"""The digest of a step's code moves with its meaning, and with nothing else."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from marin.execution.code_digest import code_changed, code_digest
from marin.execution.records import Record
from marin.execution.step import describe
from tests.execution.graphs import leaf

STEPS = '''
from lab.artifacts import Thing
from lab.words import count as count_words
from lab import numbers
import lab.shapes as shapes
from lab.deep import area
from lab.deep.twice import *
from lab.rules import Rule, Walker, doubled
from marin.execution import step

from . import near
from .near import here as right_here

LIMIT = 10
LOW, HIGH = 3, 5
TABLE = {}
TABLE["a"] = 1
TABLE.update(b=2)

try:
    from lab.fast import speed
except ImportError:
    speed = 1


def unused():
    return 1


@step("lab/thing", version="1", inline=True)
def thing(size: int) -> Thing:
    """Make a thing."""
    from lab.late import finish

    total = size + LIMIT + HIGH + TABLE["a"] + count_words("a b") + speed
    total += area(2) + twice(Walker().walk()) + doubled(Rule().least) + near.by() + right_here() + size[1:]
    return Thing(value=finish(numbers.double(total)) + shapes.corners())
'''
FILES = {
    "steps.py": STEPS,
    "artifacts.py": (
        "from dataclasses import dataclass\nfrom marin.execution import Artifact\n\n"
        "@dataclass(frozen=True, kw_only=True)\nclass Thing(Artifact):\n    value: int\n"
    ),
    "words.py": (
        "from lab.inner import split\n\ndef count(text):\n    return len(split(text))\n\ndef other():\n    return 2\n"
    ),
    "inner.py": "def split(text):\n    return text.split()\n",
    "numbers.py": "def double(x):\n    return 2 * x\n",
    "shapes.py": "def corners():\n    return 4\n\ndef edges():\n    return 0\n",
    "late.py": "def finish(x):\n    return x + 1\n",
    "near.py": "def by():\n    return 8\n\ndef here():\n    return 9\n",
    "fast.py": "def speed():\n    return 7\n",
    "deep/__init__.py": "from lab.deep.middle import surface as area\n",
    "deep/middle.py": "from .inner.bottom import surface\n\ndef circle(x):\n    return 3 * x\n",
    "deep/inner/__init__.py": "",
    "deep/inner/bottom.py": "from ...words import other\n\ndef surface(x):\n    return x * x + other()\n",
    "deep/twice.py": "def twice(x):\n    return x + x\n",
    "rules.py": (
        "import functools\nfrom dataclasses import dataclass\nimport lab.inner\n\n"
        "STRIDE = 2\n\ndef traced(function):\n    return function\n\n"
        '@dataclass(frozen=True)\nclass Rule:\n    least: int = 1\n    """In letters."""\n\n'
        "class Animal:\n    def walk(self):\n        return len(lab.inner.split('a b'))\n\n"
        "class Walker(Animal):\n    def stop(self):\n        return STRIDE\n\n"
        "@traced\n@functools.cache\ndef doubled(x):\n    return 2 * x\n"
    ),
    "__init__.py": "",
}
CASES = {
    "comments": {
        "steps": (
            '    """Make a thing."""\n',
            '    """Makes things.\n\n    At length.\n    """\n    # why this is so\n\n',
        ),
        "words": ("    return len(split(text))", "    # a remark\n    return len(\n        split( text ),\n    )"),
        "inner": ("def split(text):", 'def split(text):\n    """Splits."""'),
        "rules": ('    """In letters."""', '    """In characters."""'),
    },
    "the step's own decorator": {"steps": ("inline=True", "inline=False, cpus=2")},
    "unused": {"steps": ("    return 1\n", "    return 3\n")},
    "unused elsewhere": {"shapes": ("    return 0", "    return 3")},
}
CHANGES = [
    ("steps", "size + LIMIT", "size - LIMIT"),
    ("steps", "LIMIT = 10", "LIMIT = 11"),
    ("words", "len(split(text))", "len(split(text)) + 1"),
    ("inner", "text.split()", "text.split(' ')"),
    ("numbers", "2 * x", "3 * x"),
    ("shapes", "return 4", "return 5"),
    ("late", "x + 1", "x + 2"),
    ("artifacts", "value: int", "value: int | None"),
    ("steps", "size[1:]", "size[:1]"),
    ("steps", "LOW, HIGH = 3, 5", "LOW, HIGH = 3, 6"),
    ("steps", 'TABLE["a"] = 1', 'TABLE["a"] = 2'),
    ("steps", "TABLE.update(b=2)", "TABLE.update(b=3)"),
    ("steps", "    speed = 1", "    speed = 2"),
    ("fast", "return 7", "return 8"),
    ("near", "return 8", "return 10"),
    ("near", "return 9", "return 10"),
    ("deep.__init__", "surface as area", "circle as area"),
    ("deep.inner.bottom", "x * x", "x + x"),
    ("deep.twice", "x + x", "x * 2"),
    ("words", "return 2", "return 4"),
    ("rules", "least: int = 1", "least: int = 2"),
    ("rules", "class Walker(Animal)", "class Walker(Rule)"),
    ("rules", "'a b'", "'a c'"),
    ("rules", "STRIDE = 2", "STRIDE = 3"),
    ("rules", "return function", "return functools.cache(function)"),
    ("rules", "@functools.cache", "@functools.lru_cache"),
]
SCRIPT = """
import json, sys
from marin.execution.code_digest import code_digest
from marin.execution.planning.plan import planned_steps
from marin.execution.step import describe

found = []
for folder in sys.argv[1:]:
    sys.path.insert(0, folder)
    from lab.steps import thing
    found.append([code_digest(describe(thing).function), planned_steps([thing(3)])[1][0].identity])
    sys.path.remove(folder)
    for name in [name for name in sys.modules if name.partition(".")[0] == "lab"]:
        del sys.modules[name]
print(json.dumps(found))
"""


def write_package(folder: Path, changed: dict[str, tuple[str, str]]) -> None:
    """The package `lab` below a folder, with text replaced in some files."""
    for name, text in FILES.items():
        old, new = changed.get(name.removesuffix(".py").replace("/", "."), ("", ""))
        assert old in text
        file = folder / "lab" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace(old, new) if old else text)


def run_python(*arguments: str, path: Path | None = None) -> str:
    """What a fresh process prints."""
    places = [*([str(path)] if path is not None else []), str(Path(__file__).parents[2])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(places), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """(code digest, identity) of the step by variant of its package; `""` is the package as it is."""
    variants: dict[str, dict[str, tuple[str, str]]] = {"": {}, **CASES}
    variants |= {f"{file}: {new}": {file: (old, new)} for file, old, new in CHANGES}
    folders = []
    for number, changed in enumerate(variants.values()):
        folders.append(tmp_path_factory.mktemp(f"variant{number}"))
        write_package(folders[-1], changed)
    printed = json.loads(run_python("-c", SCRIPT, *map(str, folders)))
    return {name: (code, identity) for name, (code, identity) in zip(variants, printed, strict=True)}


@pytest.mark.parametrize("case", sorted(CASES))
def test_comments_docstrings_formatting_and_unused_code_move_neither_identity_nor_code_digest(
    case: str, found: dict[str, tuple[str, str]]
) -> None:
    assert found[case] == found[""]


@pytest.mark.parametrize(("file", "old", "new"), CHANGES)
def test_a_change_of_the_function_or_of_what_it_uses_moves_the_code_digest_alone(
    file: str, old: str, new: str, found: dict[str, tuple[str, str]]
) -> None:
    code, identity = found[f"{file}: {new}"]
    assert code != found[""][0]
    assert identity == found[""][1]


EXPERIMENT = '''
"""An experiment with a step of its own."""
import helpers
from lab.artifacts import Thing
from marin.execution import step


@step("own/thing", version="1")
def own(size: int) -> Thing:
    return Thing(value=helpers.doubled(size))


if __name__ == "__main__":
    from marin.execution.code_digest import code_digest
    from marin.execution.step import describe

    print(code_digest(describe(own).function))
'''


def test_a_step_of_a_script_has_the_same_digest_as_when_the_script_is_imported(tmp_path: Path) -> None:
    write_package(tmp_path, {})
    folder = tmp_path / "experiments"
    folder.mkdir()
    (folder / "exp.py").write_text(EXPERIMENT)
    (folder / "helpers.py").write_text("def doubled(x):\n    return 2 * x\n")
    imported = (
        f"import sys; sys.path.insert(0, {str(folder)!r}); from {{}} import own; "
        "from marin.execution.code_digest import code_digest; from marin.execution.step import describe; "
        "print(code_digest(describe(own).function))"
    )
    as_script = run_python(str(folder / "exp.py"), path=tmp_path)
    assert as_script == run_python("-c", imported.format("exp"), path=tmp_path)
    assert as_script == run_python("-c", imported.format("experiments.exp"), path=tmp_path)
    (folder / "helpers.py").write_text("def doubled(x):\n    return 3 * x\n")
    assert as_script != run_python(str(folder / "exp.py"), path=tmp_path)


def test_a_function_without_source_has_a_digest_of_what_it_does() -> None:
    def made(text: str) -> str:
        namespace: dict[str, Any] = {}
        exec(text, namespace)
        return code_digest(namespace["f"])

    assert made("def f(x):\n    return x + 1") == made("def f(x):\n    # a remark\n    return (x + 1)")
    assert made("def f(x):\n    return x + 1") != made("def f(x):\n    return x + 2")
    assert made("def f(x):\n    return [x + y for y in (1, 2)]") != made(
        "def f(x):\n    return [x + y for y in (1, 3)]"
    )


INNER = """
LIMIT = 1

def make():
    def inner(x):
        return x + LIMIT
    return inner
"""


@pytest.mark.parametrize(
    ("old", "new", "moves"),
    [
        ("        return", "        # a remark\n        return", False),
        ("x + LIMIT", "x - LIMIT", True),
        ("LIMIT = 1", "LIMIT = 2", True),
    ],
)
def test_an_inner_function_is_digested_with_what_its_module_gives_it(
    old: str, new: str, moves: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(folder: str, text: str) -> str:
        file = tmp_path / folder / "lab_inner.py"
        file.parent.mkdir()
        file.write_text(text)
        spec = importlib.util.spec_from_file_location("lab_inner", file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "lab_inner", module)
        spec.loader.exec_module(module)
        return code_digest(module.make())

    assert (made("before", INNER) != made("after", INNER.replace(old, new))) is moves


def test_digests_of_another_python_are_not_compared() -> None:
    described = describe(leaf)
    digest = code_digest(described.function)
    python, _, code = digest.partition(":")
    other = "0" * len(code)

    def changed(then: str) -> bool:
        return code_changed(described, cast(Record, SimpleNamespace(code_digest=then)))

    assert python.startswith(f"{sys.version_info.major}.{sys.version_info.minor}/")
    assert not changed(digest)
    assert changed(f"{python}:{other}")
    assert not changed(f"3.99/2:{other}")
    assert not changed(f"{python.partition('/')[0]}:{other}")
