"""Consolidation at scale: the same files however the work is cut up, and memory that does not grow with the corpus."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from marin.data.consolidation import judging, writing
from marin.data.consolidation.config import Policy, TakedownConfig, TakedownEntry
from marin.data.consolidation.consolidate import consolidate_documents
from marin.data.consolidation.places import Place
from marin.data.consolidation.steps import consolidate
from marin.data.documents.artifacts import Documents
from marin.data.documents.schema import FATES
from marin.data.filtering.personal import PersonalData
from marin.execution import StepError, materialise
from marin.recipes.registry import scale_named
from tests.data.consolidation.many import CLUSTER, Many, id_of, many_known, many_pages, no_evalset


def files(documents: Documents) -> dict[str, bytes]:
    return {name: documents.read(name) for name in documents.names()}


def many(prefix: Path, config: Many, policy: Policy = Policy()) -> Documents:
    pages = many_pages(config)
    signals, *others = (many_known(pages, config, kind) for kind in ("signals", "duplicates", "contamination", "cells"))
    duplicates, contamination, cells = others
    inputs = [pages, signals, duplicates, contamination, no_evalset(), cells]
    for one in inputs:
        materialise(one, prefix=str(prefix))
    return materialise(
        consolidate([pages], [signals], duplicates, contamination, no_evalset(), cells, config=policy),
        prefix=str(prefix),
    )


def test_files_are_the_same_bytes_however_the_work_is_cut_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Many(shards=5, rows=97)
    listed = (TakedownEntry(id_of(3), "asked for"), TakedownEntry("http://many.invalid/21*", "a court order"))
    policy = Policy(takedown=TakedownConfig(entries=listed))
    whole = files(many(tmp_path / "one", config, policy))
    assert sum(name.startswith(FATES) for name in whole) == 5
    assert sum(name.startswith(("train/", "validation/")) for name in whole) >= 6
    monkeypatch.setattr(judging, "_TASK_ROWS", 1)
    monkeypatch.setattr(judging, "_PARTITION_ROWS", 40)
    assert files(many(tmp_path / "other", config, policy)) == whole


def test_of_each_family_one_stays_the_least_that_passes(tmp_path: Path) -> None:
    clean = many(tmp_path, Many(shards=3, rows=200))
    fates = [row for name in clean.names(f"{FATES}*") for row in pq.read_table(clean.open(name)).to_pylist()]
    kept = {row["id"] for row in fates if row["reason"] is None}
    families = [range(first, first + CLUSTER) for first in range(0, 600, CLUSTER)]
    assert kept == {
        id_of(family[0]) if family[0] % (2 * CLUSTER) else min(map(id_of, family[1:])) for family in families
    }
    assert clean.rows == len(families)


def test_a_damaged_file_between_two_turns_is_named_and_only_its_shard_is_judged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Many(shards=4, rows=60)
    whole = files(many(tmp_path / "whole", config))
    monkeypatch.setattr(judging, "_TASK_ROWS", 1)
    prefix = tmp_path / "p"
    judged: list[int] = []
    monkeypatch.setattr(judging, "judge", _counted(judging.judge, judged))
    with monkeypatch.context() as broken:
        broken.setattr(writing, "settle", _failing)
        with pytest.raises(StepError, match="the power is gone"):
            many(prefix, config)
    assert judged == [0, 60, 120, 180]
    (spoilt,) = [path for path in prefix.rglob("verdicts/00000.arrow") if "/00002-" in str(path)]
    spoilt.write_bytes(spoilt.read_bytes()[:-1] + b"?")
    judged.clear()
    with pytest.raises(StepError, match=r"verdicts/00000\.arrow.*00002-"):
        many(prefix, config)
    assert judged == []
    assert files(many(prefix, config)) == whole
    assert judged == [120]


def _counted(judge: Callable[..., pa.Table], starts: list[int]) -> Callable[..., pa.Table]:
    def counting(place: Place, *arguments: object) -> pa.Table:
        starts.append(place.start)
        return judge(place, *arguments)

    return counting


def _failing(*_: object) -> None:
    raise RuntimeError("the power is gone")


class _Peak:
    """What the body of the step and its shards held at most beyond what was there before."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.python = self.arrow = 0
        monkeypatch.setattr("marin.data.consolidation.consolidate.consolidate_documents", self.measured)

    def measured(self, *arguments: object) -> Documents:
        pool = pa.proxy_memory_pool(pa.default_memory_pool())
        pa.set_memory_pool(pool)
        tracemalloc.start()
        try:
            return consolidate_documents(*arguments)  # type: ignore[arg-type]
        finally:
            self.python, self.arrow = tracemalloc.get_traced_memory()[1], pool.max_memory()
            tracemalloc.stop()
            pa.set_memory_pool(pa.system_memory_pool())


def test_memory_does_not_grow_with_the_number_of_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Row groups that a small corpus fills too: a worker holds one of each cell.
    monkeypatch.setattr(writing, "ROW_GROUP_BYTES", 1 << 15)
    rows = 1000
    monkeypatch.setattr(judging, "_TASK_ROWS", 3 * rows)
    monkeypatch.setattr(judging, "_PARTITION_ROWS", 3 * rows)
    peak = _Peak(monkeypatch)
    found = []
    for shards in (3, 12):
        many(tmp_path / str(shards), Many(shards, rows))
        found.append((peak.python, peak.arrow))
    (python, arrow), (more_python, more_arrow) = found
    documents = 9 * rows
    # Shards and files have objects of their own. The text of an id is 81 bytes, with its place in a list 89.
    assert more_python - python < 20 * documents
    assert more_arrow - arrow < 20 * documents


def test_a_scale_treats_personal_data_of_trained_and_held_out_documents_alike() -> None:
    scale = scale_named("smoke")
    assert scale.policy.personal == scale.evalset.personal
    with pytest.raises(ValueError, match=r"evalset\.personal is .*policy\.personal"):
        replace(scale, policy=replace(scale.policy, personal=PersonalData(phone="mask")))
