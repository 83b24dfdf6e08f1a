"""Overlap with evaluation items."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from marin.data.dedup.config import DecontaminationConfig
from marin.data.dedup.overlap import index_items, matches, merged_spans
from marin.data.dedup.steps import decontaminate
from marin.data.documents.artifacts import Attributes
from marin.data.evalsets.config import EvalFileConfig
from marin.data.evalsets.steps import load_evalset
from marin.data.filtering.words import WordTable, plain_hashes_of
from marin.execution import External, StepError, materialise
from tests.data.dedup.texts import prose
from tests.data.pages import Page, PageSet, write_pages

QUESTION = "If a baker sells twelve loaves every morning and nine more after noon, how many loaves does the baker sell?"
NUMBERS = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16"
COMMON = "this program is free software and you can redistribute it under the terms of the licence"


def write_items(folder: Path, *lines: str) -> EvalFileConfig:
    path = folder / "items.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return EvalFileConfig(name="maths", files=(External(str(path), version="1"),), fields=("question", "answers"))


def item(question: str, answers: str = "[]") -> str:
    return f'{{"question": "{question}", "answers": {answers}}}'


def overlap(
    tmp_path: Path, texts: dict[str, str], config: EvalFileConfig, shards: int = 1, **settings: Any
) -> tuple[dict[str, dict[str, Any]], Attributes]:
    pages = [Page(text, id=name) for name, text in texts.items()]
    dealt = tuple(tuple(pages[start::shards]) for start in range(shards))
    found = materialise(
        decontaminate([write_pages(PageSet("web", dealt))], [load_evalset(config)], DecontaminationConfig(**settings)),
        prefix=str(tmp_path / f"store{shards}"),
    )
    rows = [row for shard in found.shards for row in pq.read_table(found.local(shard.name)).to_pylist()]
    return {row["id"]: row for row in rows}, found


@pytest.mark.parametrize("shards", [1, 3])
def test_documents_with_long_n_grams_of_items_are_found_whatever_case_and_signs(tmp_path: Path, shards: int) -> None:
    config = write_items(tmp_path, item(QUESTION), item("Name the capital of the western valley", '["Arl", "Oss"]'))
    texts = {
        "copy": f"{prose(1)} {QUESTION.upper().replace(',', ' --')} {prose(2)}",
        "half": prose(3) + " " + " ".join(QUESTION.split()[:12]),
        "short": prose(4) + " Name the capital of the western valley: Arl, Oss.",
        "clean": prose(5),
        "empty": "",
    }
    rows, found = overlap(tmp_path, texts, config, shards)
    assert {name for name, row in rows.items() if row["reason"]} == {"copy", "short"}
    assert rows["copy"]["reason"] == "contaminated"
    assert rows["copy"]["evaluation_items"] == ["maths/1"]
    assert rows["short"]["evaluation_items"] == ["maths/2"]
    (first,), (last,) = rows["copy"]["first_words"], rows["copy"]["last_words"]
    assert last - first + 1 == len(QUESTION.split())
    summary = found.read_json("report.json")
    assert summary["contaminated_documents"] == 2
    assert summary["sets"]["maths"]["items"] == 2
    assert summary["sets"]["maths"]["items_found"] == 2


def test_numbers_alone_very_short_items_and_common_text_are_no_evidence(tmp_path: Path) -> None:
    config = write_items(tmp_path, item(NUMBERS), item("yes"), item(COMMON))
    texts = {f"licence{n}": f"{prose(n)} {COMMON}" for n in range(6)}
    texts |= {f"copy{n}": texts["licence0"] for n in range(20)}
    texts |= {"numbers": f"{prose(50)} {NUMBERS}", "yes": f"{prose(51)} yes"}
    rows, found = overlap(tmp_path, texts, config, common_documents=5)
    assert not [name for name, row in rows.items() if row["reason"]]
    summary = found.read_json("report.json")["sets"]["maths"]
    assert summary["items_too_short"] == 1
    assert summary["n_grams_common"] == summary["n_grams"] > 0


def test_exact_copies_of_a_leaked_item_do_not_make_it_common(tmp_path: Path) -> None:
    config = write_items(tmp_path, item(QUESTION))
    texts = {f"copy{n}": f"{prose(1)} {QUESTION}" for n in range(20)}
    rows, _ = overlap(tmp_path, texts, config, common_documents=5)
    assert all(row["reason"] == "contaminated" for row in rows.values())


def test_every_n_gram_of_an_item_is_found_where_it_stands() -> None:
    table = WordTable()
    index = index_items(iter([("set", "1", prose(1))]), DecontaminationConfig())
    text = f"{prose(2)} {prose(1)} {prose(3)}"
    before, length = len(prose(2).split()), len(prose(1).split())
    places = [place for _, _, place in matches(plain_hashes_of(text, table), index.sorted_hashes())]
    assert places == list(range(before, before + length - 12))


def test_spans_that_touch_become_one() -> None:
    assert merged_spans(iter([(5, 8), (0, 3), (2, 5), (10, 12)])) == [(0, 7), (10, 11)]


def test_a_wrong_field_a_missing_file_and_broken_lines_are_told_clearly(tmp_path: Path) -> None:
    good = write_items(tmp_path, item(QUESTION), "{broken", '["a list"]', item(" "), "")
    loaded = materialise(load_evalset(good), prefix=str(tmp_path / "a"))
    assert loaded.items == 1
    wrong = EvalFileConfig(name="maths", files=good.files, fields=("prompt",))
    with pytest.raises(StepError) as error:
        materialise(load_evalset(wrong), prefix=str(tmp_path / "b"))
    assert "'prompt'" in str(error.value)
    assert "question" in str(error.value)
    gone = EvalFileConfig(name="maths", files=(External(str(tmp_path / "no.jsonl"), version="1"),), fields=("x",))
    with pytest.raises(StepError) as error:
        materialise(load_evalset(gone), prefix=str(tmp_path / "c"))
    assert "no.jsonl" in str(error.value)


def test_items_that_share_a_template_are_indexed_in_linear_time() -> None:
    template = "the following are questions with several answers of which you are to choose the right one for"
    items = [("maths", str(n), f"{template} {n} x{n}") for n in range(20_000)]
    index = index_items(iter([*items, ("other", "0", f"{template} {template}")]), DecontaminationConfig())
    shared = [owners for owners in index.grams[13].values() if len(owners) > 20_000]
    assert shared
    assert all(len(set(owners)) == len(owners) for owners in shared)
