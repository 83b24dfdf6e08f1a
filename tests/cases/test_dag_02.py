"""dag-02: where outputs lie is no part of an identity."""

from __future__ import annotations

import shutil
from pathlib import Path

from marin.execution import make_plan, materialise
from marin.storage import open_store
from tests.execution.graphs import Probe, Text, executions, joined, leaf, upper


def three_steps(probe: Probe) -> Text:
    return joined((upper(leaf("a", probe), probe),), probe)


def test_three_steps_under_two_prefixes_have_equal_identities_and_different_paths(tmp_path: Path) -> None:
    target = three_steps(Probe())
    prefixes = [str(tmp_path / "one"), str(tmp_path / "other" / "deep"), f"memory://{tmp_path.name}/bucket"]
    plans = [make_plan([target], open_store(prefix)) for prefix in prefixes]
    assert len({tuple(step.identity for step in plan.steps) for plan in plans}) == 1
    found = [materialise(target, prefix) for prefix in prefixes]
    assert len({artifact.identity for artifact in found}) == 1
    addresses = [artifact.url("text.txt") for artifact in found]
    assert all(address.startswith(prefix) for address, prefix in zip(addresses, prefixes, strict=True))


def test_a_store_that_was_moved_is_still_done_and_readable(tmp_path: Path) -> None:
    tally = tmp_path / "tally"
    tally.mkdir()
    materialise(three_steps(Probe(str(tally))), str(tmp_path / "before"))
    shutil.move(tmp_path / "before", tmp_path / "after")
    found = materialise(three_steps(Probe(str(tally))), str(tmp_path / "after"))
    assert found.read("text.txt") == b"A"
    assert [executions(tally, name) for name in ("leaf-a", "upper-a", "joined")] == [1, 1, 1]
