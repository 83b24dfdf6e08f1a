"""dag-01: equal meaning gives an equal identity in any process; a later field at its literal moves nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

A = '{"name":"tok","langs":["en","de"],"limits":{"min":1,"max":2},"lr":0.001}'
B = '{"lr":1e-3,"limits":{"max":2,"min":1},"langs":["en","de"],"name":"tok"}'
C = '{"lr":0.001,"limits":{"max":2,"min":1},"langs":["de","en"],"name":"tok"}'

PRINT = """
import json, sys
from dataclasses import dataclass, field
from marin.execution import added, runtime
from tests.execution.recipes import identity, whatever

@dataclass(frozen=True)
class Tokens:
    name: str
    langs: tuple[str, ...]
    limits: dict[str, int]
    lr: float
    stops: frozenset[str] = frozenset({"yes", "no", "maybe", "never", "always"})

@dataclass(frozen=True)
class Later(Tokens):
    mode: str = added("plain", since="2026.12")

found = {}
for name, text in zip("abc", sys.argv[1:4]):
    values = json.loads(text)
    found[name] = identity(whatever(Tokens(**values)))
    found[f"{name} with a later field"] = identity(whatever(Later(**values)))
    found[f"{name} with that field set"] = identity(whatever(Later(**values, mode="other")))
print(json.dumps(found))
"""


def identities(seed: str) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", PRINT, A, B, C],
        env={**os.environ, "PYTHONHASHSEED": seed},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return dict(json.loads(done.stdout))


@pytest.fixture(scope="module")
def found() -> list[dict[str, str]]:
    return [identities(seed) for seed in ("0", "1", "2")]


def test_three_hash_seeds_give_the_same_identities(found: list[dict[str, str]]) -> None:
    assert found[0] == found[1] == found[2]


def test_key_order_and_spelling_of_numbers_do_not_count_and_list_order_does(found: list[dict[str, str]]) -> None:
    assert found[0]["a"] == found[0]["b"]
    assert found[0]["a"] != found[0]["c"]


def test_a_field_that_is_added_later_moves_nothing_at_its_literal(found: list[dict[str, str]]) -> None:
    for name in "abc":
        assert found[0][f"{name} with a later field"] == found[0][name]
        assert found[0][f"{name} with that field set"] != found[0][name]
