"""When there is nothing to run on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from marin.execution import Artifact, RunOptions, Runner, StepError, make_plan, step
from marin.execution.inline import Backend
from marin.storage import open_store


@dataclass(frozen=True, kw_only=True)
class Number(Artifact):
    """A number."""

    value: int


@step("test/number", version="1")
def number(value: int) -> Number:
    """A number."""
    return Number(value=value)


def no_machines() -> Backend:
    raise StepError("no cluster answers")


def test_a_back_end_that_cannot_start_ends_the_run_and_blames_no_step(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    runner = Runner(store, make_plan([number(1)], store), RunOptions(), no_machines)
    with pytest.raises(StepError, match="no cluster answers"):
        runner.run()
    assert not store.list("_failed")
    assert any(info.key.endswith(".released") for info in store.list("_claims"))
