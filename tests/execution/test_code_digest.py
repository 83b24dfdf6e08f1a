"""The digest of a step's code moves with its meaning, and with nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

STEPS = '''
from lab.artifacts import Thing
from lab.words import count as count_words
from lab import numbers
import lab.shapes as shapes
from marin.execution import step

LIMIT = 10


def unused():
    return 1


@step("lab/thing", version="1", inline=True)
def thing(size: int) -> Thing:
    """Make a thing."""
    from lab.late import finish

    total = size + LIMIT + count_words("a b")
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
    "shapes.py": "def corners():\n    return 4\n",
    "late.py": "def finish(x):\n    return x + 1\n",
    "__init__.py": "",
}
PRINT = (
    "from lab.steps import thing; from marin.execution.step import describe; "
    "from marin.execution.code_digest import code_digest; from marin.execution.plan import planned_steps; "
    "print(code_digest(describe(thing).function), planned_steps([thing(3)])[1][0].identity)"
)


def digests(folder: Path, **changed: tuple[str, str]) -> tuple[str, str]:
    """(code digest, identity) of the step in a fresh process, with text replaced in some files."""
    package = folder / "lab"
    package.mkdir(exist_ok=True)
    for name, text in FILES.items():
        old, new = changed.get(name.removesuffix(".py"), ("", ""))
        assert old in text
        (package / name).write_text(text.replace(old, new) if old else text)
    path = os.pathsep.join([str(folder), str(Path(__file__).parents[2])])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PRINT], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    code, identity = done.stdout.split()
    return code, identity


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return digests(tmp_path_factory.mktemp("original"))


def test_comments_docstrings_and_formatting_move_neither_identity_nor_code_digest(
    tmp_path: Path, original: tuple[str, str]
) -> None:
    edited = digests(
        tmp_path,
        steps=(
            '    """Make a thing."""\n',
            '    """Makes things.\n\n    At length.\n    """\n    # why this is so\n\n',
        ),
        words=("    return len(split(text))", "    # a remark\n    return len(\n        split( text ),\n    )"),
        inner=("def split(text):", 'def split(text):\n    """Splits."""'),
    )
    assert edited == original


def test_code_that_the_step_does_not_use_does_not_count(tmp_path: Path, original: tuple[str, str]) -> None:
    assert digests(tmp_path, steps=("    return 1", "    return 3"), words=("    return 2", "    return 4")) == original


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("steps", "size + LIMIT", "size - LIMIT"),
        ("steps", "LIMIT = 10", "LIMIT = 11"),
        ("words", "len(split(text))", "len(split(text)) + 1"),
        ("inner", "text.split()", "text.split(' ')"),
        ("numbers", "2 * x", "3 * x"),
        ("shapes", "return 4", "return 5"),
        ("late", "x + 1", "x + 2"),
        ("artifacts", "value: int", "value: int | None"),
    ],
)
def test_a_change_of_the_function_or_of_what_it_uses_moves_the_code_digest_alone(
    file: str, old: str, new: str, tmp_path: Path, original: tuple[str, str]
) -> None:
    code, identity = digests(tmp_path, **{file: (old, new)})
    assert code != original[0]
    assert identity == original[1]
