"""The parts of the search for evaluation items: any workers, and files that are damaged between them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from marin.data.dedup.config import DecontaminationConfig
from marin.data.dedup.overlap import decontaminate as parts
from marin.data.dedup.steps import decontaminate
from marin.data.documents.artifacts import Attributes
from marin.data.evalsets.config import EvalFileConfig
from marin.data.evalsets.steps import load_evalset
from marin.execution import StepError, materialise
from tests.data.dedup.test_overlap import corpus, item, write_items
from tests.data.dedup.workers import made_by
from tests.data.pages import Page, PageSet, spread, write_pages

TEXTS, ITEMS = corpus(11)


def graph(config: EvalFileConfig) -> Attributes:
    pages = [Page(text, id=name) for name, text in TEXTS.items()]
    sets = [PageSet("a", spread(pages[::2], 4)), PageSet("b", spread(pages[1::2], 3))]
    return decontaminate(
        [write_pages(one) for one in sets], [load_evalset(config)], DecontaminationConfig(common_documents=2)
    )


@pytest.fixture
def questions(tmp_path: Path) -> EvalFileConfig:
    return write_items(tmp_path, *map(item, ITEMS))


def test_every_file_is_the_same_for_any_number_of_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, questions: EvalFileConfig
) -> None:
    monkeypatch.setattr(parts, "_SHARDS_PER_PART", 2)
    one = made_by(1, graph(questions), tmp_path / "1")
    assert one.read_json("report.json")["contaminated_documents"] > 5
    for workers in (2, 3, 7):
        found = made_by(workers, graph(questions), tmp_path / str(workers))
        assert {name: found.read(name) for name in found.names()} == {name: one.read(name) for name in one.names()}


def test_a_damaged_file_of_hits_is_named_and_exactly_its_shard_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, questions: EvalFileConfig
) -> None:
    def stopped(*_: Any, **__: Any) -> Any:
        raise StepError("stopped before the verdicts")

    def scans() -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for path in (tmp_path / "store/documents/overlap").rglob("state/*/map00/*/done.json"):
            found.setdefault(path.parts[-4], set()).add(path.parts[-2])
        return found

    with monkeypatch.context() as patch:
        patch.setattr(parts, "JudgeTask", stopped)
        with pytest.raises(StepError, match="stopped before the verdicts"):
            materialise(graph(questions), prefix=str(tmp_path / "store"))
    ((first, shards),) = scans().items()
    assert len(shards) == 7
    (shard,) = (name for name in shards if name.startswith("00002-"))
    (damaged,) = (tmp_path / "store/documents/overlap").rglob(f"{first}/map00/{shard}/*/hits.npz")
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(StepError, match=rf"'hits.npz' of documents/overlap\S* is damaged .*shard map00/{shard}"):
        materialise(graph(questions), prefix=str(tmp_path / "store"))
    found = materialise(graph(questions), prefix=str(tmp_path / "store"))
    assert [names for epoch, names in scans().items() if epoch != first] == [{shard}]
    clean = materialise(graph(questions), prefix=str(tmp_path / "clean"))
    assert {name: found.read(name) for name in found.names()} == {name: clean.read(name) for name in clean.names()}
