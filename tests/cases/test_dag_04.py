"""dag-04: the real error is shown, also when its exception cannot be pickled."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from marin.execution import Runner, RunOptions, make_plan
from marin.execution.running.inline import Backend, InlineBackend
from marin.storage import open_store
from tests.cases.dag_errors import raising
from tests.execution.driver import ray_backend
from tests.execution.graphs import joined

CASES = {
    "keywords": ("NeedsKeywords", "shard 7: no header", "raise NeedsKeywords(shard=7"),
    "lock": ("HoldsLock", "holds a lock", 'raise HoldsLock("holds a lock")'),
    "local": (
        "raising.<locals>.DefinedInside",
        "defined in a function",
        'raise DefinedInside("defined in a function")',
    ),
    "huge": ("ValueError", "xxx", "raise ValueError("),
}


def check(make_backend: Callable[[], Backend], prefix: Path) -> None:
    store = open_store(prefix)
    target = joined((*(raising(kind).label(kind) for kind in CASES), raising("fine").label("fine")))
    result = Runner(store, make_plan([target], store), RunOptions(), make_backend).run()
    failures = {p.step.call.label: p.failure for p in result.failures}
    assert set(failures) == set(CASES)
    for kind, (name, text, line) in CASES.items():
        failure = failures[kind]
        assert failure is not None
        assert failure.error.endswith(name)
        assert text in failure.message
        assert len(failure.message) < 100_000
        assert line in failure.trace
        assert "dag_errors.py" in failure.trace
        assert not failure.node.endswith(f"pid {os.getpid()}") or make_backend is InlineBackend
    assert {p.step.call.label: p.status.name for p in result.steps}["fine"] == "done"
    assert len(store.list("_failed")) == len(CASES)


def test_type_message_and_line_of_every_exception_are_shown_in_process(tmp_path: Path) -> None:
    check(InlineBackend, tmp_path)


@pytest.mark.ray
def test_type_message_and_line_of_every_exception_are_shown_on_ray(tmp_path: Path, ray_cluster: None) -> None:
    check(ray_backend, tmp_path)
