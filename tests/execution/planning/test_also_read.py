"""A second prefix that is read and never written."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from marin.execution import Action, Artifact, Runner, RunOptions, RunResult, make_plan, step
from marin.execution.layout import tombstone_key
from marin.execution.planning.plan import record_of
from marin.execution.records import materialise_record
from marin.execution.running.inline import InlineBackend
from marin.storage import Store, open_store
from tests.execution.graphs import Probe, Text, executions, joined, leaf, upper


@pytest.fixture
def other() -> Store:
    return open_store(f"memory://{uuid.uuid4().hex}/elsewhere")


@dataclass(frozen=True, kw_only=True)
class Holder(Artifact):
    """Refers to an artifact that another step made."""

    part: Text


@step("also/holder", version="1", inline=True)
def holder(part: Text) -> Holder:
    return Holder(part=part)


def run(target: Artifact, store: Store, **options: Any) -> RunResult:
    result = Runner(store, make_plan([target], store, **options), RunOptions(), InlineBackend).run()
    assert result.succeeded, [p.failure for p in result.steps]
    return result


def test_a_step_of_another_prefix_is_shown_with_its_size_used_and_not_copied(
    local_store: Store, other: Store, probe: Probe
) -> None:
    run(leaf("abc", probe), other)
    before = other.list()
    target = upper(leaf("abc", probe), probe)
    plan = make_plan([target], local_store, also_read=[other])
    found = plan.steps[0]
    assert (found.action, found.reason) == (Action.cached, f"3 B in {other.url}")
    run(target, local_store, also_read=[other])
    assert executions(probe.tally, "leaf-abc") == 1
    assert other.list() == before
    assert not [info for info in local_store.list() if "test.leaf" in info.key or info.key.startswith("test/leaf")]
    (made,) = [one for one in make_plan([target], local_store).steps if one.name == "test/upper"]
    assert record_of(made, local_store).dependencies[0].identity == plan.steps[0].identity
    assert make_plan([target], local_store, also_read=[other]).to_do() == []
    assert [one.name for one in make_plan([target], local_store).to_do()] == []


def test_without_the_other_prefix_the_step_runs(local_store: Store, other: Store, probe: Probe) -> None:
    run(leaf("abc", probe), other)
    run(upper(leaf("abc", probe), probe), local_store)
    assert executions(probe.tally, "leaf-abc") == 2


def test_ones_own_record_goes_before_and_prefixes_are_asked_in_order(
    local_store: Store, other: Store, probe: Probe
) -> None:
    third = open_store(f"memory://{uuid.uuid4().hex}/third")
    for store in (other, third):
        run(leaf("a", probe), store)
    run(leaf("b", probe), third)
    run(leaf("c", probe), local_store)
    run(leaf("c", probe), other)
    target = joined(tuple(leaf(text, probe) for text in "abc"), probe)
    plan = make_plan([target], local_store, also_read=[other, third])
    assert [one.store.url if one.store else "here" for one in plan.steps[:3]] == [other.url, third.url, "here"]


def test_a_tombstoned_step_of_another_prefix_does_not_answer(local_store: Store, other: Store, probe: Probe) -> None:
    run(leaf("a", probe), other)
    (made,) = make_plan([leaf("a", probe)], other).steps
    other.create(tombstone_key(made.name, made.identity), b"{}")
    assert make_plan([leaf("a", probe)], local_store, also_read=[other]).to_do() != []


def test_a_result_that_refers_to_another_prefix_finds_it_again(
    local_store: Store, tmp_path: Path, probe: Probe
) -> None:
    away = open_store(tmp_path / "away")
    run(leaf("abc", probe), away)
    target = holder(leaf("abc", probe))
    run(target, local_store, also_read=[away])
    (made,) = [one for one in make_plan([target], local_store).steps if one.name == "also/holder"]
    found: Any = materialise_record(local_store, record_of(made, local_store), Holder)
    assert found.part.text == "abc" and found.part.read("text.txt") == b"abc"
    assert executions(probe.tally, "leaf-abc") == 1


def test_a_forced_step_is_redone_here_although_another_prefix_has_it(
    local_store: Store, other: Store, probe: Probe
) -> None:
    run(leaf("a", probe), other)
    run(leaf("a", probe), local_store, also_read=[other], force="leaf")
    assert executions(probe.tally, "leaf-a") == 2
