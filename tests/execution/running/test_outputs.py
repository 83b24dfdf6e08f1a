"""What a step leaves: files, results, and what a reader finds damaged."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from marin.execution import (
    Artifact,
    Runner,
    RunOptions,
    StepError,
    current_run,
    make_plan,
    materialise,
    step,
)
from marin.execution.running.inline import InlineBackend
from marin.storage import Store
from tests.execution.graphs import (
    Probe,
    Text,
    executions,
    leaf,
    upper,
)
from tests.execution.running.runs import failure_of, run


@dataclass(frozen=True, kw_only=True)
class Counted(Artifact):
    """Fields of several types."""

    count: int
    share: float
    names: tuple[str, ...]
    first: float | None


def damaged(store: Store, name: str) -> tuple[Path, Any]:
    """A file of the upstream's output, and a consumer of it."""
    path = next(Path(store.url).glob(f"{name}/*/a1-*/text.txt"))
    return path, path.stat()


@pytest.mark.parametrize("damage", ["truncated", "grown", "deleted"])
def test_a_reader_of_a_damaged_output_names_the_step_and_the_way_out(
    damage: str, local_store: Store, probe: Probe
) -> None:
    assert run(leaf("text", probe), local_store).succeeded
    path, _ = damaged(local_store, "test/leaf")
    if damage == "deleted":
        path.unlink()
    else:
        path.write_bytes(b"" if damage == "truncated" else b"text and more")
    failure = failure_of(run(upper(leaf("text", probe), probe), local_store))
    assert "'text.txt' of test/leaf-" in failure.message
    assert "--force '^test/leaf$'" in failure.message
    plan = make_plan([upper(leaf("text", probe), probe)], local_store, force="^test/leaf$")
    assert Runner(local_store, plan, RunOptions(), InlineBackend).run().succeeded
    assert executions(probe.tally, "leaf-text") == 2


def test_a_missing_empty_file_is_missed(local_store: Store, probe: Probe) -> None:
    assert run(leaf("", probe), local_store).succeeded
    damaged(local_store, "test/leaf")[0].unlink()
    failure = failure_of(run(upper(leaf("", probe), probe), local_store))
    assert "is missing" in failure.message


def test_two_output_files_of_one_name_are_refused(tmp_path: Path) -> None:
    @step("runner/twice", version="1", inline=True)
    def twice() -> Text:
        current_run().write_bytes("same", b"1")
        current_run().write_bytes("same", b"2")
        return Text(text="x")

    with pytest.raises(StepError, match="writes the file 'same' twice"):
        materialise(twice(), str(tmp_path))


def test_a_file_of_the_state_is_published_without_a_copy(tmp_path: Path) -> None:
    @step("runner/publishes", version="1", inline=True)
    def publishes() -> Text:
        run = current_run()
        with run.state.write("checkpoint/data") as stream:
            stream.write(b"weights")
        run.publish("model/data", run.state.key("checkpoint/data"))
        return Text(text="x")

    found = materialise(publishes(), str(tmp_path))
    assert found.names("model/*") == ["model/data"]
    info = found.file_info("model/data")
    assert info.key.endswith("/state/000001/checkpoint/data")
    assert info.sha256 == hashlib.sha256(b"weights").hexdigest()
    assert found.local("model/data").read_bytes() == b"weights"


@pytest.mark.parametrize("value", ["five", None, True, [5]])
def test_a_result_whose_field_is_no_such_type_fails_the_step_that_made_it(store: Store, value: Any) -> None:
    @step("run/typed", version="1", inline=True)
    def typed() -> Counted:
        return Counted(count=value, share=1, names=["a"], first=None)  # type: ignore[arg-type]

    failure = failure_of(run(typed(), store))
    assert failure.expected and "run/typed" in failure.message and "result.count is" in failure.message
    assert store.list("_steps") == []


def test_a_result_may_say_a_whole_float_as_an_int_and_a_tuple_as_a_list(store: Store) -> None:
    @step("run/typed", version="1", inline=True)
    def typed() -> Counted:
        return Counted(count=5, share=1, names=["a"], first=0.5)  # type: ignore[arg-type]

    assert run(typed(), store).succeeded
