"""`marin documents find` for a document that lies in several places, and for one that nothing came of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from marin.cli.main import main
from marin.data.documents.io import iterate_documents
from marin.data.sources.config import SourceConfig
from marin.data.sources.steps import read_source
from marin.execution import External, materialise
from tests.data.pages import Page, PageSet, write_pages

ROW = {"text": "A text in three files.", "url": "http://x.invalid/a", "stars": 5}


@pytest.fixture
def prefix(tmp_path: Path) -> str:
    """Two runs, each over three files that hold the same record."""
    place = str(tmp_path / "p")
    for number in range(3):
        (tmp_path / f"{number}.jsonl").write_text(json.dumps(ROW) + '\n{"other": 1}\n')
    for version in ("1", "2"):
        files = (External(str(tmp_path / "*.jsonl"), version),)
        documents = materialise(read_source(SourceConfig("books", files, task_bytes=1)), prefix=place)
    assert len({one.id for one in iterate_documents(documents)}) == 1
    return place


def find(prefix: str, *words: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(["documents", "find", *words, "--prefix", prefix])
    assert isinstance(stop.value.code, int)
    return stop.value.code


def test_a_document_in_many_places_is_told_in_full_once_and_shortly_elsewhere(
    prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert find(prefix, ROW["url"]) == 0  # type: ignore[arg-type]
    blocks = capsys.readouterr().out.strip().split("\n\n")
    note = blocks.pop()
    assert "--all" in note
    assert len(blocks) == 6
    assert [block.count("stars") for block in blocks] == [1, 0, 0, 0, 0, 0]
    assert [block.splitlines()[0].partition(", ")[2] for block in blocks] == ["", *(f"place {n}" for n in range(2, 7))]
    assert all(len(block.splitlines()) == 4 for block in blocks[1:])
    assert sorted(name for block in blocks for name in ("0.jsonl", "1.jsonl", "2.jsonl") if name in block) == sorted(
        ["0.jsonl", "1.jsonl", "2.jsonl"] * 2
    )
    makers = [block.split("made by")[1].split()[0] for block in blocks]
    assert makers[:3] == makers[:1] * 3 and makers[3:] == makers[3:4] * 3 and makers[0] != makers[3]
    (newest,) = Path(prefix).glob(f"_steps/{makers[0].replace('/', '.').rstrip(',')}*.json")
    assert json.loads(newest.read_text())["recipe"]["config"]["config"]["files"][0]["version"] == "2"


def test_all_tells_everything_of_every_place(prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert find(prefix, ROW["url"], "--all") == 0  # type: ignore[arg-type]
    shown = capsys.readouterr().out
    assert shown.count("stars") == 6 and "place 2" not in shown and "--all" not in shown


def test_what_nothing_came_of_is_looked_for_where_the_prefix_counts_it(
    prefix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert find(prefix, "http://x.invalid/none") == 1
    told = capsys.readouterr().err
    assert "counted in reading.json of documents/source" in told and "extraction.json" not in told
    other = str(tmp_path / "q")
    materialise(write_pages(PageSet("web", ((Page("A text.", url="http://x.invalid/b"),),))), prefix=other)
    assert find(other, "http://x.invalid/none") == 1
    assert "counted in" not in capsys.readouterr().err
