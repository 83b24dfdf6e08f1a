"""What the shards of one map leave for the next: checked when it is read, and made again alone when it is damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from marin.execution import Flow, Intermediate, Runner, RunOptions, RunResult, StepError, current_run, make_plan, step
from marin.execution.running.inline import InlineBackend
from marin.storage import Store, open_store
from tests.execution.graphs import Numbers, Probe, executions

SHARDS = 4


@dataclass(frozen=True)
class Part:
    """One shard of the first map."""

    number: int
    probe: Probe


@dataclass(frozen=True)
class Sum:
    """One shard of the second map: reads what every shard of the first one left for it."""

    number: int
    parts: tuple[Intermediate, ...]
    probe: Probe


def split(part: Part) -> list[Intermediate]:
    part.probe.note(f"split-{part.number}")
    run = current_run()
    return [run.store_intermediate(f"{to}.json", json.dumps([part.number * 10 + to]).encode()) for to in range(SHARDS)]


def total(part: Sum) -> int:
    part.probe.note(f"total-{part.number}")
    return sum(json.loads(current_run().load_intermediate(file))[0] for file in part.parts)


@step("intermediates/sums", version="1", fans_out=True)
def sums(probe: Probe) -> Numbers:
    """Two maps, with a stop between them when a file says so."""
    run = current_run()
    made = run.map(split, [Part(number, probe) for number in range(SHARDS)])
    header = run.store_intermediate("header", b"of the body")
    if (Path(probe.tally) / "stop").exists():
        raise StepError("stopped between the maps")
    assert run.load_intermediate(header) == b"of the body"
    run.account(Flow("shards", SHARDS, SHARDS, {}))
    return Numbers(
        values=tuple(
            run.map(total, [Sum(to, tuple(files[to] for files in made), probe) for to in range(SHARDS)], unit="sums")
        )
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "prefix")


@pytest.fixture
def probe(tmp_path: Path) -> Probe:
    (tmp_path / "tally").mkdir()
    return Probe(str(tmp_path / "tally"))


def run(store: Store, probe: Probe) -> RunResult:
    return Runner(store, make_plan([sums(probe)], store), RunOptions(), InlineBackend).run()


def cause(result: RunResult) -> str:
    (failed,) = result.failures
    assert failed.failure is not None
    return failed.failure.message


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize(
    ("damage", "told"), [(cut, "is damaged"), (zero, "has another digest"), (Path.unlink, "is missing")]
)
def test_a_damaged_intermediate_file_is_named_and_its_shard_alone_is_done_again(
    damage: Callable[[Path], None], told: str, store: Store, probe: Probe
) -> None:
    stop = Path(probe.tally) / "stop"
    stop.touch()
    assert cause(run(store, probe)) == "stopped between the maps"
    stop.unlink()
    (damaged,) = [path for path in Path(store.url).rglob("2.json") if path.read_bytes() == b"[12]"]
    damage(damaged)
    message = cause(run(store, probe))
    assert "'2.json' of intermediates/sums" in message
    assert told in message
    assert "shard map00/00001" in message
    result = run(store, probe)
    assert result.succeeded, cause(result)
    assert [executions(probe.tally, f"split-{number}") for number in range(SHARDS)] == [1, 2, 1, 1]
    # The sums that had been made before the damage was met stand.
    assert [executions(probe.tally, f"total-{number}") for number in range(SHARDS)] == [1, 1, 2, 1]
    (file,) = store.list("_steps")
    assert json.loads(store.read(file.key))["result"]["values"] == [60, 64, 68, 72]


def test_intermediate_files_are_no_output(store: Store, probe: Probe) -> None:
    assert run(store, probe).succeeded
    (file,) = store.list("_steps")
    assert json.loads(store.read(file.key))["files"] == []
