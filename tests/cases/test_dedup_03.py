"""A damaged file between two parts of duplicate removal is named, and exactly its shard is done again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marin.data.dedup import duplicates
from marin.data.dedup.config import DedupConfig
from marin.data.dedup.steps import deduplicate
from marin.data.documents.artifacts import Attributes
from marin.data.filtering.steps import annotate
from marin.execution import StepError, materialise
from tests.data.dedup.runs import EVERYTHING_PASSES
from tests.data.dedup.texts import changed, prose
from tests.data.pages import Page, PageSet, spread, write_pages

PAGES = [Page(changed(prose(n % 5), n % 3, seed=n), id=f"{n:02d}") for n in range(20)]


def graph() -> Attributes:
    pages = write_pages(PageSet("web", spread(PAGES, 4)))
    return deduplicate(pages, annotate(pages, EVERYTHING_PASSES), DedupConfig(documents_per_task=5))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def zero(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def shards_of(prefix: Path, number: str) -> dict[str, set[str]]:
    """Finished shards of a map by the claim epoch they were done in."""
    found: dict[str, set[str]] = {}
    for path in (prefix / "documents" / "duplicates_within").rglob(f"state/*/{number}/*/done.json"):
        found.setdefault(path.parts[-4], set()).add(path.parts[-2])
    return found


def stopped(**_: Any) -> Any:
    raise StepError("stopped before the components")


@pytest.mark.parametrize("file", ["order.npy", "edges-2.npy"])
@pytest.mark.parametrize(
    ("damage", "told"), [(cut, "is damaged"), (Path.unlink, "is missing"), (zero, "has another digest")]
)
def test_a_damaged_file_of_keys_is_refused_by_name_and_exactly_its_shard_is_done_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    file: str,
    damage: Callable[[Path], None],
    told: str,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(duplicates, "ClusterTask", stopped)
        with pytest.raises(StepError, match="stopped before the components"):
            materialise(graph(), prefix=str(tmp_path))
    ((first, shards),) = shards_of(tmp_path, "map00").items()
    assert len(shards) == 4
    (shard,) = (name for name in shards if name.startswith("00002-"))
    (damaged,) = (tmp_path / "documents" / "duplicates_within").rglob(f"{first}/map00/{shard}/*/{file}")
    damage(damaged)
    with pytest.raises(StepError, match=rf"'{file}' of documents/duplicates_within\S* {told} .*shard map00/{shard}"):
        materialise(graph(), prefix=str(tmp_path))
    assert set(shards_of(tmp_path, "map00")) == {first}
    found = materialise(graph(), prefix=str(tmp_path))
    again = {epoch: names for epoch, names in shards_of(tmp_path, "map00").items() if epoch != first}
    assert list(again.values()) == [{shard}]
    clean = materialise(graph(), prefix=str(tmp_path / "clean"))
    assert {name: found.read(name) for name in found.names()} == {name: clean.read(name) for name in clean.names()}
