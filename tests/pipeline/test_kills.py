"""kill -9 of a driver in the middle of the graph: the next run completes, and nothing is done twice.

Kills in training are those of operations/soak/kills.py, a few of which tests/operations plays.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pipeline.running import copy_without, kill, record, records, run, start, wait_until


@pytest.mark.ray
def test_killed_while_duplicates_are_removed_the_next_run_completes_and_redoes_nothing(
    smoke_prefix: Path, tmp_path: Path
) -> None:
    prefix = copy_without(smoke_prefix, tmp_path / "p", "documents/duplicates")
    before = records(prefix)
    flags = ("--only", "documents/duplicates")
    driver = start(prefix, *flags)
    wait_until(lambda: any((prefix / "_claims").glob("documents.duplicates-*/*.json")), driver, "a claim")
    kill(driver)
    assert len(records(prefix)) == len(before), "the driver was to be killed before its commit"
    result = run(prefix, *flags)
    assert result.returncode == 0, result.stderr
    after = records(prefix)
    assert {name: after[name] for name in before} == before
    assert (
        record(prefix, "documents/duplicates")["output_digest"]
        == (record(smoke_prefix, "documents/duplicates")["output_digest"])
    )
