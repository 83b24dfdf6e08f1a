"""What is redone: forced steps, damaged outputs, bytes that were removed and are needed again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from marin.execution import Action, Artifact, Plan, Runner, RunOptions, RunResult, WrongPattern, make_plan
from marin.execution.layout import tombstone_key
from marin.execution.planning.plan import record_of
from marin.execution.records import Record
from marin.execution.running.inline import InlineBackend
from marin.execution.upkeep.verify import reasons_to_redo
from marin.storage import Store
from tests.execution.graphs import Probe, Text, diamond, executions, joined, leaf, upper


def run(target: Artifact, store: Store, **options: Any) -> RunResult:
    plan = make_plan([target], store, **options)
    result = Runner(store, plan, RunOptions(retry_pause=0.01), InlineBackend).run()
    assert result.succeeded, [(p.step.display, p.status, p.failure) for p in result.steps]
    return result


def actions(plan: Plan) -> list[Action]:
    return [step.action for step in plan.steps]


def bury(store: Store, name: str) -> None:
    """Remove the bytes of every step of a name, as `marin tombstone` does."""
    plan = make_plan([diamond(Probe())], store)
    for step in plan.steps:
        if step.name == name:
            record = record_of(step, store)
            store.create(tombstone_key(step.name, step.identity, step.generation), b"{}")
            for file in record.files:
                store.delete(file.key)


def counts(probe: Probe, *names: str) -> list[int]:
    return [executions(probe.tally, name) for name in names]


LEAVES = ("leaf-a", "leaf-b")
ALL = (*LEAVES, "upper-a", "upper-b", "joined")


def test_steps_whose_bytes_were_removed_stay_done_and_so_do_their_descendants(store: Store, probe: Probe) -> None:
    run(diamond(probe), store)
    bury(store, "test/leaf")
    bury(store, "test/joined")
    assert make_plan([diamond(probe)], store).to_do() == []


def test_a_consumer_that_runs_has_removed_bytes_rebuilt_and_nothing_else(store: Store, probe: Probe) -> None:
    run(diamond(probe), store)
    bury(store, "test/leaf")
    target: Text = joined((diamond(probe), leaf("a", probe)), probe)
    plan = make_plan([target], store)
    rebuilt = [step for step in plan.steps if step.action is Action.run]
    assert [step.name for step in rebuilt] == ["test/leaf", "test/joined"]
    assert rebuilt[0].generation == 2 and "tombstone" in rebuilt[0].reason
    run(target, store)
    assert counts(probe, *ALL) == [2, 1, 1, 1, 2]
    assert make_plan([target], store).to_do() == []


def test_removed_bytes_are_rebuilt_from_their_roots_when_every_step_lost_them(store: Store, probe: Probe) -> None:
    run(diamond(probe), store)
    for name in ("test/leaf", "test/upper"):
        bury(store, name)
    run(upper(diamond(probe), probe), store)
    assert counts(probe, *ALL) == [1, 1, 1, 1, 1]
    bury(store, "test/joined")
    other: Text = upper(upper(diamond(probe), probe), probe)
    assert run(other, store).succeeded
    assert counts(probe, *ALL) == [1, 1, 1, 1, 1]
    third: Text = joined((diamond(probe),), probe)
    run(third, store)
    assert counts(probe, *ALL) == [2, 2, 2, 2, 3]
    assert make_plan([third, other], store).to_do() == []


def test_a_rebuilt_output_that_comes_out_different_reruns_its_descendants(local_store: Store, tmp_path: Path) -> None:
    from marin.execution import current_run, step

    runs: list[int] = []

    @step("redo/noisy", version="1", inline=True)
    def noisy() -> Text:
        runs.append(1)
        current_run().write_bytes("text.txt", str(len(runs)).encode())
        return Text(text=str(len(runs)))

    @step("redo/reader", version="1", inline=True)
    def reader(above: Text, name: str) -> Text:
        return Text(text=f"{name}{above.read('text.txt').decode()}")

    run(reader(noisy(), "one"), local_store)
    plan = make_plan([noisy()], local_store)
    record = record_of(plan.steps[0], local_store)
    local_store.create(tombstone_key(record.name, record.identity), b"{}")
    local_store.delete(record.files[0].key)
    assert make_plan([reader(noisy(), "one")], local_store).to_do() == []
    run(reader(noisy(), "other"), local_store)
    stale = make_plan([reader(noisy(), "one")], local_store)
    assert [step.name for step in stale.to_do()] == ["redo/reader"]


@pytest.mark.parametrize("damage", ["missing", "truncated", "other bytes"])
def test_verify_finds_damage_of_every_kind_and_has_it_redone(local_store: Store, probe: Probe, damage: str) -> None:
    run(diamond(probe), local_store)
    assert make_plan([diamond(probe)], local_store, verify=reasons_to_redo).to_do() == []
    (path,) = [file for file in Path(local_store.url).glob("test/upper/*/a*/text.txt") if file.read_text() == "A"]
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(b"" if damage == "truncated" else b"Z")
    assert make_plan([diamond(probe)], local_store).to_do() == []
    plan = make_plan([diamond(probe)], local_store, verify=reasons_to_redo)
    by_action = {step.action: step for step in plan.steps}
    assert actions(plan).count(Action.run) == 1 and by_action[Action.run].reason.startswith("damaged: 'text.txt'")
    assert by_action[Action.check].name == "test/joined"
    run(diamond(probe), local_store, verify=reasons_to_redo)
    assert counts(probe, *ALL) == [1, 1, 2, 1, 1]
    assert make_plan([diamond(probe)], local_store, verify=reasons_to_redo).to_do() == []


def test_verify_redoes_a_step_whose_record_cannot_be_read(local_store: Store, probe: Probe) -> None:
    run(diamond(probe), local_store)
    (path,) = Path(local_store.url).glob("_steps/test.joined-*.json")
    path.write_text('{"schema": 1, "name"')
    run(diamond(probe), local_store, verify=reasons_to_redo)
    assert counts(probe, *ALL) == [1, 1, 1, 1, 2]
    assert len(list(Path(local_store.url).glob("_steps/test.joined-*.json"))) == 2


def test_verify_redoes_a_step_that_was_made_from_another_output_than_lies_there(
    local_store: Store, probe: Probe
) -> None:
    run(diamond(probe), local_store)
    for path in Path(local_store.url).glob("_steps/test.leaf-*.json"):
        text = path.read_text()
        if '"text": "a"' in text:
            path.write_text(text.replace('"output_digest": "', '"output_digest": "00'))
    plan = make_plan([diamond(probe)], local_store, verify=lambda store, records: {})
    assert [step.name for step in plan.to_do()] == ["test/upper", "test/joined"]
    assert "output changed" in plan.to_do()[0].reason


def test_a_tombstone_is_no_damage(store: Store, probe: Probe) -> None:
    run(diamond(probe), store)
    bury(store, "test/upper")
    seen: list[str] = []

    def look(store: Store, records: Sequence[Record]) -> dict[str, str]:
        seen.extend(record.name for record in records)
        return {}

    assert make_plan([diamond(probe)], store, verify=look).to_do() == []
    assert sorted(set(seen)) == ["test/joined", "test/leaf"]


def test_force_of_a_step_that_only_does_not_need_is_refused(store: Store, probe: Probe) -> None:
    run(diamond(probe), store)
    with pytest.raises(WrongPattern, match="nothing needs that --only 'test/leaf' asks for"):
        make_plan([diamond(probe)], store, only="test/leaf", force="joined")
    assert make_plan([diamond(probe)], store, only="joined", force="test/leaf").to_do() != []


def test_a_step_that_was_relabelled_after_a_crash_goes_on_from_its_state(local_store: Store, probe: Probe) -> None:
    from marin.execution import current_run, step

    @step("redo/slow", version="1", inline=True)
    def slow(fail: Probe = Probe()) -> Text:
        found = current_run().state.find("half")
        current_run().state.create("half", b"") if not found else None
        if not found:
            raise RuntimeError("crash")
        return Text(text=str(found[0].epoch))

    plan = make_plan([slow().label("before")], local_store)
    assert not Runner(local_store, plan, RunOptions(), InlineBackend).run().succeeded
    run(slow().label("after"), local_store)
    (record,) = [record_of(s, local_store) for s in make_plan([slow()], local_store).steps]
    assert record.result == {"text": "1"} and record.provenance["epoch"] == 2
    assert record.path.startswith("redo/slow/after-")
