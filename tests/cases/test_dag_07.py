"""dag-07: a finished mark without its output is noticed by the reader, output without a mark is not trusted."""

from __future__ import annotations

from pathlib import Path

import pytest

from marin.execution import Runner, RunOptions, RunResult, make_plan
from marin.execution.running.inline import InlineBackend
from marin.storage import Store, open_store
from tests.execution.graphs import Probe, Text, executions, leaf, upper


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "prefix")


@pytest.fixture
def probe(tmp_path: Path) -> Probe:
    (tmp_path / "tally").mkdir()
    return Probe(str(tmp_path / "tally"))


def run(target: Text, store: Store, force: str | None = None) -> RunResult:
    return Runner(store, make_plan([target], store, force=force), RunOptions(), InlineBackend).run()


def damage(store: Store, how: str) -> None:
    """Harm the output of the first step."""
    output = next(Path(store.url).glob("test/leaf/*/a1-*/text.txt"))
    if how == "deleted":
        output.unlink()
    elif how == "truncated":
        output.write_bytes(output.read_bytes()[:-1])
    elif how == "edited by hand":
        output.write_bytes(output.read_bytes() + b"\n")


@pytest.mark.parametrize("how", ["deleted", "truncated", "edited by hand"])
def test_a_damaged_output_is_noticed_when_read_and_only_its_step_is_redone(
    how: str, store: Store, probe: Probe
) -> None:
    assert run(upper(leaf("text", probe), probe), store).succeeded
    damage(store, how)
    assert make_plan([upper(leaf("text", probe), probe)], store).to_do() == []
    other = upper(leaf("text", probe), probe).label("redo")
    failed = run(other, store, force="^test/upper$")
    (broken,) = failed.failures
    assert broken.failure is not None
    assert broken.failure.expected
    assert "test/leaf" in broken.failure.message
    assert "--force '^test/leaf$'" in broken.failure.message
    assert run(other, store, force="^test/leaf$").succeeded
    assert executions(probe.tally, "leaf-text") == 2
    assert executions(probe.tally, "upper-text") == 2  # the first run, and the one that met the damage
    assert run(other, store, force="^test/upper$").succeeded
    assert executions(probe.tally, "leaf-text") == 2


def test_output_without_a_mark_is_not_trusted(store: Store, probe: Probe) -> None:
    target = upper(leaf("text", probe), probe)
    assert run(target, store).succeeded
    for info in store.list("_steps"):
        store.delete(info.key)
    assert len(make_plan([target], store).to_do()) == 2
    assert run(target, store).succeeded
    assert executions(probe.tally, "leaf-text") == executions(probe.tally, "upper-text") == 2


def test_a_lost_mark_reruns_that_step_alone(store: Store, probe: Probe) -> None:
    target = upper(leaf("text", probe), probe)
    assert run(target, store).succeeded
    store.delete(next(info.key for info in store.list("_steps") if "test.upper" in info.key))
    assert run(target, store).succeeded
    assert executions(probe.tally, "leaf-text") == 1
    assert executions(probe.tally, "upper-text") == 2
