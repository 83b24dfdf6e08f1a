"""A damaged file between two parts of these steps is named, and exactly its shard is done again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from marin.data.dedup import lines, substrings
from marin.data.dedup.spans_config import LineConfig, SpanConfig
from marin.data.dedup.steps import repeated_lines, repeated_spans
from marin.data.documents.artifacts import Attributes
from marin.execution import StepError, materialise
from tests.data.dedup.marked import mark
from tests.data.dedup.texts import prose
from tests.data.pages import Page, PageSet, spread, write_pages

FRAME = "Home of the valley archive and all its collections"
PAGES = [Page(f"{FRAME}\n\n{prose(n, 4)}\n\n{prose(99, 8)}", id=f"{n:02d}") for n in range(16)]


def graph(kind: str) -> Attributes:
    pages = [write_pages(PageSet("web", spread(PAGES, 4)))]
    if kind == "lines":
        return repeated_lines(pages, LineConfig())
    return repeated_spans(pages, mark(pages), SpanConfig())


def finished(prefix: Path, kind: str, number: str) -> dict[str, set[str]]:
    """Finished shards of a map by the claim epoch they were done in."""
    found: dict[str, set[str]] = {}
    for path in (prefix / "documents" / kind).rglob(f"state/*/{number}/*/done.json"):
        found.setdefault(path.parts[-4], set()).add(path.parts[-2])
    return found


def stopped(*_: Any, **__: Any) -> Any:
    raise StepError("stopped here")


@pytest.mark.parametrize(
    ("kind", "number", "file", "room", "next_task"),
    [
        ("lines", "map00", "lines-00000.npy", lines, "_Count"),
        ("spans", "map02", "grams-00000.npy", substrings, "PlaceTask"),
    ],
)
def test_a_damaged_file_is_refused_by_name_and_exactly_its_shard_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, number: str, file: str, room: Any, next_task: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(room, next_task, stopped)
        with pytest.raises(StepError, match="stopped here"):
            materialise(graph(kind), prefix=str(tmp_path))
    ((first, shards),) = finished(tmp_path, kind, number).items()
    (shard,) = (name for name in shards if name.startswith("00002-"))
    (damaged,) = (tmp_path / "documents" / kind).rglob(f"{first}/{number}/{shard}/*/{file}")
    damaged.write_bytes(damaged.read_bytes()[:-10])
    with pytest.raises(StepError, match=rf"'{file}' of documents/{kind}\S* is damaged .*shard {number}/{shard}"):
        materialise(graph(kind), prefix=str(tmp_path))
    found = materialise(graph(kind), prefix=str(tmp_path))
    again = {epoch: names for epoch, names in finished(tmp_path, kind, number).items() if epoch != first}
    assert list(again.values()) == [{shard}]
    clean = materialise(graph(kind), prefix=str(tmp_path / "clean"))
    assert {name: found.read(name) for name in found.names()} == {name: clean.read(name) for name in clean.names()}
    assert found.read_json("report.json")["documents_cut"] >= 15
