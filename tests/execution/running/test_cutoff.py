"""Early cutoff: a change that changes no bytes stops where that shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from marin.execution import Artifact, Runner, RunOptions, RunResult, Status, current_run, make_plan, step
from marin.execution.records import load_record
from marin.execution.running.inline import InlineBackend
from marin.storage import Store
from tests.execution.graphs import Probe, Text, executions

pytestmark = pytest.mark.usefixtures("probe")


def source(version: str) -> Any:
    """A step whose versions differ and whose output does not."""

    @step("cutoff/source", version=version, inline=True)
    def read(text: str, probe: Probe = Probe()) -> Text:
        probe.note("source")
        current_run().write_bytes("text.txt", text.encode())
        return Text(text=text)

    return read


@step("cutoff/upper", version="1", inline=True, cutoff=True)
def upper(above: Text, suffix: str = "", probe: Probe = Probe()) -> Text:
    probe.note("upper")
    text = above.text.upper() + suffix
    current_run().write_bytes("text.txt", text.encode())
    return Text(text=text)


@step("cutoff/plain", version="1", inline=True)
def plain(above: Text, probe: Probe = Probe()) -> Text:
    probe.note("plain")
    return Text(text=above.text)


@step("cutoff/pair", version="1", inline=True, cutoff=True)
def pair(one: Text, other: Text, probe: Probe = Probe()) -> Text:
    probe.note("pair")
    return Text(text=f"{one.text}+{other.text}")


def run(target: Artifact, store: Store, **options: Any) -> RunResult:
    result = Runner(store, make_plan([target], store, **options), RunOptions(max_concurrent=1), InlineBackend).run()
    assert result.succeeded, [p.failure for p in result.steps]
    return result


def counts(probe: Probe, *names: str) -> list[int]:
    return [executions(probe.tally, name) for name in names]


def test_equal_input_bytes_share_an_output_below_a_change_and_all_is_recorded(local_store: Store, probe: Probe) -> None:
    run(upper(upper(source("1")("a", probe), "!", probe), "?", probe), local_store)
    result = run(upper(upper(source("2")("a", probe), "!", probe), "?", probe), local_store)
    assert counts(probe, "source", "upper") == [2, 2]
    assert [progress.status for progress in result.steps] == [Status.done] * 3
    for progress in result.steps[1:]:
        record = load_record(local_store, progress.step.record_key)
        first = load_record(local_store, record.provenance["alias_of"])
        assert record.files == first.files and record.output_digest == first.output_digest
        assert record.identity == progress.step.identity != first.identity
        assert record.dependencies[0].identity == progress.step.upstream[0].identity
        assert (Path(local_store.url) / record.files[0].key).exists()
    assert make_plan([upper(upper(source("2")("a", probe), "!", probe), "?", probe)], local_store).to_do() == []


def test_another_input_another_setting_or_a_step_without_cutoff_runs(local_store: Store, probe: Probe) -> None:
    run(upper(source("1")("a", probe), "!", probe), local_store)
    run(upper(source("1")("b", probe), "!", probe), local_store)
    run(upper(source("2")("a", probe), "?", probe), local_store)
    assert counts(probe, "upper") == [3]
    run(plain(source("1")("a", probe), probe), local_store)
    run(plain(source("2")("a", probe), probe), local_store)
    assert counts(probe, "plain") == [2]


def test_where_an_input_stands_counts(local_store: Store, probe: Probe) -> None:
    a, b = source("1")("a", probe), source("1")("b", probe)
    run(pair(a, b, probe), local_store)
    run(pair(b, a, probe), local_store)
    assert counts(probe, "pair") == [2]
    run(pair(source("2")("a", probe), b, probe), local_store)
    assert counts(probe, "pair") == [2]


def test_a_forced_redo_runs_and_an_output_without_bytes_is_not_shared(local_store: Store, probe: Probe) -> None:
    run(upper(source("1")("a", probe), "", probe), local_store)
    run(upper(source("1")("a", probe), "", probe), local_store, force="cutoff/upper")
    assert counts(probe, "upper") == [2]
    for key in [info.key for info in local_store.list("_steps") if "cutoff.upper" in info.key]:
        local_store.create(key.removesuffix(".json") + ".tombstone", b"{}")
    run(upper(source("2")("a", probe), "", probe), local_store)
    assert counts(probe, "upper") == [3]


def test_an_offer_whose_record_is_gone_is_passed_over(local_store: Store, probe: Probe) -> None:
    run(upper(source("1")("a", probe), "", probe), local_store)
    (offer,) = local_store.list("_content")
    local_store.delete(json.loads(local_store.read(offer.key))["record"])
    run(upper(source("2")("a", probe), "", probe), local_store)
    assert counts(probe, "upper") == [2]


def test_steps_without_cutoff_write_no_index(local_store: Store, probe: Probe) -> None:
    run(plain(source("1")("a", probe), probe), local_store)
    assert local_store.list("_content") == []
