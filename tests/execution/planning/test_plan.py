"""The plan: what is cached, what runs and why, and that looking writes nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from marin.execution import (
    Action,
    Artifact,
    Plan,
    Runner,
    RunOptions,
    RunResult,
    StepError,
    UnstableValue,
    current_run,
    make_plan,
    runtime,
    step,
)
from marin.execution.reasons.explain import explain
from marin.execution.running.inline import InlineBackend
from marin.storage import CountedStore, Store, open_store
from tests.execution.graphs import MapConfig, Probe, diamond, executions, squares


@dataclass(frozen=True, kw_only=True)
class Value(Artifact):
    number: int


@dataclass(frozen=True)
class Settings:
    factor: float = 1.0
    depth: int = 0
    workers: int = runtime(1)


def versioned(version: str) -> Any:
    """A step function `plan/base` of some version."""

    @step("plan/base", version=version, inline=True)
    def base(settings: Settings = Settings(), probe: Probe = Probe()) -> Value:
        probe.note("base")
        current_run().write_bytes("number.txt", b"1")
        return Value(number=1)

    return base


base = versioned("1")


@step("plan/noisy", version="1", inline=True)
def noisy(source: Value, probe: Probe = Probe()) -> Value:
    """Its output counts how often it ran: a step that is not deterministic."""
    probe.note("noisy")
    return Value(number=executions(probe.tally, "noisy"))


@step("plan/middle", version="1", inline=True)
def middle(source: Value, probe: Probe = Probe()) -> Value:
    probe.note("middle")
    return Value(number=source.number + 1)


@step("plan/parity", version="1", inline=True)
def parity(source: Value, probe: Probe = Probe()) -> Value:
    """The same output for many inputs."""
    probe.note("parity")
    return Value(number=0)


@step("plan/top", version="1", inline=True)
def top(source: Value, settings: Settings = Settings(), probe: Probe = Probe()) -> Value:
    probe.note("top")
    return Value(number=source.number * 10)


class Counting:
    """A store that counts what is asked of it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.calls: list[tuple[str, Any]] = []

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self.store, name)
        if not callable(inner):
            return inner

        def call(*arguments: Any) -> Any:
            self.calls.append((name, arguments[0] if arguments else None))
            return inner(*arguments)

        return call


def run(target: Artifact, store: Store, **options: Any) -> RunResult:
    plan = make_plan([target], store, **options)
    result = Runner(store, plan, RunOptions(retry_pause=0.01), InlineBackend).run()
    assert result.succeeded, [(p.step.display, p.status, p.failure) for p in result.steps]
    return result


def actions(plan: Plan) -> dict[str, Action]:
    return {step.call.label or step.name: step.action for step in plan.steps}


def reasons(target: Artifact, store: Store) -> dict[str, str]:
    plan = make_plan([target], store)
    explain(plan, store)
    return {step.name: step.reason for step in plan.steps}


def counts(probe: Probe, *names: str) -> list[int]:
    return [executions(probe.tally, name) for name in names]


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """Every object and folder with its size and time of change."""
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*")}


def test_a_step_without_a_record_runs_and_is_cached_afterwards(store: Store, probe: Probe) -> None:
    target = top(middle(base(Settings(), probe), probe), Settings(), probe)
    assert set(actions(make_plan([target], store)).values()) == {Action.run}
    assert reasons(target, store)["plan/top"] == "never run here"
    run(target, store)
    assert set(actions(make_plan([target], store)).values()) == {Action.cached}
    assert counts(probe, "base", "middle", "top") == [1, 1, 1]


def test_a_plan_with_nothing_to_do_reads_one_listing_and_writes_nothing(local_store: Store, probe: Probe) -> None:
    store = local_store
    target = diamond(probe)
    run(target, store)
    before = snapshot(Path(store.url))
    counting: Any = Counting(store)
    plan = make_plan([diamond(probe)], counting)
    assert plan.to_do() == []
    assert counting.calls == [("pages", "_steps")]
    assert snapshot(Path(store.url)) == before


def test_a_dry_run_of_a_prefix_that_does_not_exist_makes_nothing(tmp_path: Path, probe: Probe) -> None:
    store = open_store(tmp_path / "absent")
    plan = make_plan([diamond(probe)], store)
    explain(plan, store)
    assert len(plan.to_do()) == 5
    assert not (tmp_path / "absent").exists()


def test_a_changed_setting_reruns_its_step_and_what_depends_on_it_and_says_why(store: Store, probe: Probe) -> None:
    def target(factor: float, depth: int = 0) -> Value:
        return top(middle(base(Settings(factor), probe), probe), Settings(depth=depth), probe)

    run(target(1), store)
    assert set(reasons(target(1), store).values()) == {""}
    changed = reasons(target(1, depth=7), store)
    assert changed["plan/top"].startswith("settings.depth 0 → 7 (against plan/top-")
    assert actions(make_plan([target(1, depth=7)], store)) == {
        "plan/base": Action.cached,
        "plan/middle": Action.cached,
        "plan/top": Action.run,
    }
    below = reasons(target(1.5), store)
    assert below["plan/base"].startswith("settings.factor 1.0 → 1.5 (against plan/base-")
    for name in ("plan/middle", "plan/top"):  # the setting in which it began, not just the step above
        assert re.match(
            rf"upstream plan/base-[0-9a-f]{{10}}: settings\.factor 1\.0 → 1\.5 \(against {name}-", below[name]
        )
    run(target(1.5), store)
    assert counts(probe, "base", "middle", "top") == [2, 2, 2]


def test_a_runtime_setting_reruns_nothing(store: Store, probe: Probe) -> None:
    run(base(Settings(workers=1), probe), store)
    assert make_plan([base(Settings(workers=8), Probe())], store).to_do() == []


def test_a_version_bump_reruns_the_step_and_its_dependents_and_says_so(store: Store, probe: Probe) -> None:
    run(top(middle(base(Settings(), probe), probe), Settings(), probe), store)
    bumped = top(middle(versioned("2")(Settings(), probe), probe), Settings(), probe)
    assert reasons(bumped, store)["plan/base"].startswith("version '1' → '2'")
    run(bumped, store)
    assert counts(probe, "base", "middle", "top") == [2, 2, 2]
    run(top(middle(base(Settings(), probe), probe), Settings(), probe), store)
    assert counts(probe, "base", "middle", "top") == [2, 2, 2]


def test_a_cached_target_does_not_ask_for_its_upstream(store: Store, probe: Probe) -> None:
    target = top(middle(base(Settings(), probe), probe), Settings(), probe)
    run(target, store)
    for info in store.list("_steps"):
        if "plan.top" not in info.key:
            store.delete(info.key)
    plan = make_plan([target], store)
    assert actions(plan) == {
        "plan/base": Action.unneeded,
        "plan/middle": Action.unneeded,
        "plan/top": Action.cached,
    }


def test_only_restricts_a_run_to_matching_steps_and_what_they_need(store: Store, probe: Probe) -> None:
    target = top(middle(base(Settings(), probe).label("web"), probe), Settings(), probe)
    plan = make_plan([target], store, only="middle")
    assert actions(plan) == {"web": Action.run, "plan/middle": Action.run, "plan/top": Action.unneeded}
    run(target, store, only=r"\(web\)$")
    assert counts(probe, "base", "middle", "top") == [1, 0, 0]


@pytest.mark.parametrize("option", ["only", "force"])
def test_a_pattern_that_matches_nothing_is_refused_with_the_names(store: Store, option: str) -> None:
    with pytest.raises(StepError, match=rf"--{option} 'medium' matches no step; the steps are plan/base, plan/middle"):
        make_plan([middle(base())], store, **{option: "medium"})
    with pytest.raises(StepError, match=rf"--{option} '\(' is not a regular expression"):
        make_plan([middle(base())], store, **{option: "("})


def test_force_makes_a_generation_and_equal_output_leaves_descendants_alone(store: Store, probe: Probe) -> None:
    target = top(middle(base(Settings(), probe), probe), Settings(), probe)
    run(target, store)
    plan = make_plan([target], store, force="^plan/base$")
    assert actions(plan) == {"plan/base": Action.run, "plan/middle": Action.check, "plan/top": Action.check}
    result = run(target, store, force="^plan/base$")
    assert [progress.status.name for progress in result.steps] == ["done", "cached", "cached"]
    assert counts(probe, "base", "middle", "top") == [2, 1, 1]
    assert [key for key in (info.key for info in store.list("_steps")) if ".r2.json" in key] == [
        plan.steps[0].record_key
    ]
    assert make_plan([target], store).to_do() == []


def test_a_forced_step_whose_output_changed_reruns_descendants_until_the_output_is_equal_again(
    store: Store, probe: Probe
) -> None:
    target = top(parity(middle(noisy(base(Settings(), probe), probe), probe), probe), Settings(), probe)
    run(target, store)
    result = run(target, store, force="noisy")
    names = ("base", "noisy", "middle", "parity", "top")
    assert counts(probe, *names) == [1, 2, 2, 2, 1]
    assert {p.step.name: p.status.name for p in result.steps} == {
        "plan/noisy": "done",
        "plan/middle": "done",
        "plan/parity": "done",
        "plan/top": "cached",
    }
    assert make_plan([target], store).to_do() == []
    run(target, store)
    assert counts(probe, *names) == [1, 2, 2, 2, 1]


def test_two_runs_that_force_one_step_redo_it_once(store: Store, probe: Probe) -> None:
    target = middle(noisy(base(Settings(), probe), probe), probe)
    run(target, store)
    plans = [make_plan([target], store, force="noisy") for _ in range(2)]
    results = [Runner(store, plan, RunOptions(), InlineBackend).run() for plan in plans]
    assert all(result.succeeded for result in results)
    assert counts(probe, "noisy", "middle") == [2, 2]
    assert [p.status.name for p in results[1].steps] == ["cached", "cached"]


def test_a_record_of_another_recipe_under_the_same_short_name_is_refused(store: Store, probe: Probe) -> None:
    target = base(Settings(), probe)
    run(target, store)
    (info,) = store.list("_steps")
    identity = make_plan([target], store).steps[0].identity
    other = identity[:10] + "0" * 54
    store.put(info.key, store.read(info.key).replace(identity.encode(), other.encode()))
    plan = make_plan([top(target, Settings(), probe)], store)
    result = Runner(store, plan, RunOptions(), InlineBackend).run()
    failure = result.failures[0].failure
    assert failure is not None
    assert "belongs to another recipe" in failure.message


def test_a_redo_that_another_run_made_reaches_descendants_at_the_next_run(store: Store, probe: Probe) -> None:
    upstream = noisy(base(Settings(), probe), probe)
    target = middle(upstream, probe)
    run(target, store)
    run(upstream, store, force="noisy")
    plan = make_plan([target], store)
    assert "plan/noisy" in plan.targets[0].reason
    assert "its output changed" in plan.targets[0].reason
    run(target, store)
    assert counts(probe, "noisy", "middle") == [2, 2]
    assert make_plan([target], store).to_do() == []


def test_a_forced_map_redoes_its_shards_and_the_next_plan_is_quiet(store: Store, probe: Probe) -> None:
    target = squares("forced", MapConfig(shards=3), probe)
    run(target, store)
    run(target, store, force="squares")
    assert counts(probe, "shard-0", "shard-1", "shard-2") == [2, 2, 2]
    assert make_plan([target], store).to_do() == []


def test_a_materialised_artifact_is_no_target(store: Store) -> None:
    with pytest.raises(StepError, match="not a materialised artifact"):
        make_plan([Value(number=1)], store)


def test_two_thousand_records_are_planned_from_one_listing(store: Store) -> None:
    target: Value = base()
    for depth in range(2_000):
        target = top(target, Settings(depth=depth))
    plan = make_plan([target], store)
    for planned in plan.steps:
        store.put(planned.record_key, b"{}")
    counting: Any = Counting(store)
    assert make_plan([target], counting).to_do() == []
    assert counting.calls == [("pages", "_steps")]


def test_a_changed_leaf_costs_the_listing_and_two_creates(store: Store, probe: Probe) -> None:
    def graph(last: int) -> Value:
        return top(middle(base(Settings(), probe), probe), Settings(depth=last), probe)

    run(graph(0), store)
    created: list[str] = []

    class Seen(CountedStore):
        def create(self, key: str, data: bytes) -> None:
            created.append(key)
            super().create(key, data)

    counted = Seen(store)
    plan = make_plan([graph(1)], counted)
    assert counted.requests == {"LIST": 1}
    assert Runner(counted, plan, RunOptions(), InlineBackend).run().succeeded
    assert counted.requests["LIST"] == 1
    of_the_step = [key for key in created if not key.startswith(("_runs/", "_probe/"))]
    (done,) = [step for step in plan.steps if step.name == "plan/top"]
    assert of_the_step == [f"_claims/plan.top-{done.identity[:10]}/000001.json", done.record_key]


def test_two_functions_of_one_name_and_version_are_refused(store: Store) -> None:
    @step("plan/base", version="1", inline=True)
    def other(settings: Settings = Settings()) -> Value:
        return Value(number=2)

    with pytest.raises(StepError, match=r"'plan/base', version '1', is two functions: .*base and .*other; rename"):
        make_plan([base(), other()], store)


def test_a_value_without_a_stable_form_names_its_step(store: Store) -> None:
    with pytest.raises(UnstableValue, match=r"plan/top: settings\.factor holds"):
        make_plan([top(base(), Settings(factor=lambda: 1))], store)  # type: ignore[arg-type]
