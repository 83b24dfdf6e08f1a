"""data-03: a mixture with missing, unfinished or empty components does not start, and lists each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from marin.execution import StepError, materialise
from marin.tokens.mixture.steps import build_mixture, refuse_faulty
from marin.tokens.shards.artifacts import TokenShards
from marin.tokens.shards.config import PackingConfig
from marin.tokens.shards.reading import open_shard, token_counts
from tests.tokens.building import written_shards


def made(prefix: Path, name: str, documents: int) -> TokenShards:
    rows = tuple((index + 1,) * 7 for index in range(documents))
    return materialise(written_shards(rows, 20, 4096, name), prefix=str(prefix))


def test_each_faulty_component_is_listed_with_its_fault(tmp_path: Path):
    cells = {
        name: made(tmp_path, name, 0 if name == "none" else 30) for name in ("good", "none", "gone", "cut", "short")
    }
    cells["gone"].local("00001.bin").unlink()
    path = cells["cut"].local("00000.idx")
    path.write_bytes(path.read_bytes()[:-5])
    cells["short"].local("counts.npy").unlink()
    with pytest.raises(StepError) as caught:
        refuse_faulty(cells)
    text = str(caught.value)
    lines = {line.split(":")[0].strip(): line for line in text.splitlines()[1:]}
    assert set(lines) == {"none", "gone", "cut", "short"}
    assert "no document matches split=train source=none" in lines["none"]
    assert "00001.bin" in lines["gone"]
    assert "is missing" in lines["gone"]
    assert "00000.idx" in lines["cut"]
    assert "counts.npy" in lines["short"]


def test_the_step_refuses_an_empty_cell_by_name(tmp_path: Path):
    cells = {name: written_shards(((1, 2, 3),) if name == "full" else (), 5, 4096, name) for name in ("full", "void")}
    with pytest.raises(StepError, match="void: no document matches split=train source=void"):
        materialise(build_mixture(cells), prefix=str(tmp_path))
    with pytest.raises(StepError, match="needs at least one cell"):
        materialise(build_mixture({}), prefix=str(tmp_path))


def test_figures_equal_a_recount_from_the_files(tmp_path: Path):
    shards = made(tmp_path, "good", 55)
    opened = [open_shard(shards, shard) for shard in shards.shards]
    assert sum(item.documents for item in opened) == shards.documents == 55
    ids = np.concatenate([item.ids for item in opened])
    assert len(ids) == shards.tokens == int(token_counts(shards).sum()) == 55 * 7


def test_a_component_without_its_packing_plan_or_checksums_is_unfinished(tmp_path: Path):
    rows = tuple((index + 1,) * 7 for index in range(30))
    packing = PackingConfig("best_fit", 16)
    cells = {
        name: materialise(written_shards(rows, 20, 4096, name, packing), prefix=str(tmp_path))
        for name in ("whole", "unplanned", "unchecked")
    }
    cells["unplanned"].local("00001.plan").unlink()
    cells["unchecked"].local("00000.sums").unlink()
    with pytest.raises(StepError) as caught:
        refuse_faulty(cells)
    faults = str(caught.value).splitlines()[1:]
    assert [line.split(":")[0].strip() for line in faults] == ["unchecked", "unplanned"]
    assert "00000.sums" in faults[0] and "00001.plan" in faults[1]
