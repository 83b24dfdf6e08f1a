"""Overlap with evaluation items."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from marin.data.dedup.config import DecontaminationConfig
from marin.data.dedup.overlap import decontaminate as decontaminate_module
from marin.data.dedup.overlap import index as index_module
from marin.data.dedup.overlap.evidence import merged_spans
from marin.data.dedup.overlap.index import LOOKED_FOR, TOO_SHORT, Item, index_items
from marin.data.dedup.overlap.words import WordReader, plain_words
from marin.data.dedup.steps import decontaminate
from marin.data.documents.artifacts import Attributes
from marin.data.evalsets.config import EvalFileConfig
from marin.data.evalsets.overlap import read_overlap
from marin.data.evalsets.steps import load_evalset
from marin.execution import External, StepError, materialise
from tests.data.dedup.texts import prose
from tests.data.pages import Page, PageSet, write_pages

QUESTION = "If a baker sells twelve loaves every morning and nine more after noon, how many loaves does the baker sell?"
NUMBERS = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16"
COMMON = "this program is free software and you can redistribute it under the terms of the licence"

Rows = dict[str, dict[str, Any]]


def write_items(folder: Path, *lines: str, name: str = "maths") -> EvalFileConfig:
    path = folder / f"{name}.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return EvalFileConfig(name=name, files=(External(str(path), version="1"),), fields=("question", "answers"))


def item(question: str, answers: Sequence[str] = ()) -> str:
    return json.dumps({"question": question, "answers": list(answers)})


def overlap(
    prefix: Path, texts: dict[str, str], *sets: EvalFileConfig, shards: int = 1, **settings: Any
) -> tuple[Rows, Attributes]:
    pages = [Page(text, id=name) for name, text in texts.items()]
    dealt = tuple(tuple(pages[start::shards]) for start in range(shards))
    found = materialise(
        decontaminate(
            [write_pages(PageSet("web", dealt))],
            [load_evalset(config) for config in sets],
            DecontaminationConfig(**settings),
        ),
        prefix=str(prefix),
    )
    rows = [row for shard in found.shards for row in pq.read_table(found.local(shard.name)).to_pylist()]
    return {row["id"]: row for row in rows}, found


@pytest.mark.parametrize("shards", [1, 3])
def test_documents_with_long_n_grams_of_items_are_found_whatever_case_and_signs(tmp_path: Path, shards: int) -> None:
    config = write_items(tmp_path, item(QUESTION), item("Name the capital of the western valley", ["Arl", "Oss"]))
    texts = {
        "copy": f"{prose(1)} {QUESTION.upper().replace(',', ' --')} {prose(2)}",
        "half": prose(3) + " " + " ".join(QUESTION.split()[:12]),
        "short": prose(4) + " Name the capital of the western valley: Arl, Oss.",
        "clean": prose(5),
        "empty": "",
    }
    rows, found = overlap(tmp_path / "store", texts, config, shards=shards)
    assert {name for name, row in rows.items() if row["reason"]} == {"copy", "short"}
    assert rows["copy"]["reason"] == "contaminated"
    assert rows["copy"]["evaluation_sets"] == ["maths"]
    assert rows["copy"]["evaluation_items"] == ["maths/1"]
    assert rows["short"]["evaluation_items"] == ["maths/2"]
    (first,), (last,) = rows["copy"]["first_words"], rows["copy"]["last_words"]
    assert last - first + 1 == len(QUESTION.split())
    (start,), (end,) = rows["copy"]["starts"], rows["copy"]["ends"]
    assert texts["copy"][start:end] == QUESTION.upper().replace(",", " --").rstrip("?")
    summary = found.read_json("report.json")
    assert summary["contaminated_documents"] == 2
    assert summary["sets"]["maths"]["items"] == 2
    assert summary["sets"]["maths"]["items_found"] == summary["sets"]["maths"]["items_found_whole"] == 2
    assert {example["text"] for example in summary["sets"]["maths"]["examples"]} == {
        texts["copy"][start:end],
        "Name the capital of the western valley: Arl, Oss",
    }


def test_what_an_item_asks_is_found_without_its_answers_and_an_answer_alone_is_no_evidence(tmp_path: Path) -> None:
    config = write_items(
        tmp_path, item("Which valley lies west of the river?", ["the long valley of the bakers", "none of the others"])
    )
    texts = {
        "asked": f"{prose(1)} Which valley lies west of the river? {prose(2)}",
        "answered": f"{prose(3)} the long valley of the bakers {prose(4)}",
        "whole": f"{prose(5)} which valley lies west of the river the long valley of the bakers none {prose(6)}",
    }
    rows, _ = overlap(tmp_path / "store", texts, config)
    assert {name for name, row in rows.items() if row["reason"]} == {"asked", "whole"}


def test_numbers_alone_very_short_items_and_common_text_are_no_evidence(tmp_path: Path) -> None:
    config = write_items(tmp_path, item(NUMBERS), item("yes"), item(COMMON))
    texts = {f"licence{n}": f"{prose(n)} {COMMON}" for n in range(6)}
    texts |= {f"copy{n}": texts["licence0"] for n in range(20)}
    texts |= {"numbers": f"{prose(50)} {NUMBERS}", "yes": f"{prose(51)} yes"}
    rows, found = overlap(tmp_path / "store", texts, config, common_documents=5)
    assert not [name for name, row in rows.items() if row["reason"]]
    summary = found.read_json("report.json")["sets"]["maths"]
    assert summary["items_too_short"] == summary["items_without_letters"] == 1
    assert summary["items_with_common_n_grams_only"] == 1
    assert summary["n_grams_common"] == summary["n_grams"] > 0
    assert read_overlap(found)["maths"].states == {"1": "uncompared", "2": "uncompared", "3": "common"}


def test_an_n_gram_is_common_above_the_limit_and_not_at_it(tmp_path: Path) -> None:
    config = write_items(tmp_path, item(COMMON))
    texts = {f"licence{n}": f"{prose(n)} {COMMON}" for n in range(5)}
    rows, _ = overlap(tmp_path / "store", texts, config, shards=3, common_documents=5)
    assert all(row["reason"] for row in rows.values())
    rows, _ = overlap(tmp_path / "store", texts, config, shards=3, common_documents=4)
    assert not any(row["reason"] for row in rows.values())


def test_exact_copies_of_a_leaked_item_do_not_make_it_common(tmp_path: Path) -> None:
    config = write_items(tmp_path, item(QUESTION))
    texts = {f"copy{n}": f"{prose(1)} {QUESTION}" for n in range(20)}
    rows, _ = overlap(tmp_path / "store", texts, config, shards=2, common_documents=5)
    assert all(row["reason"] == "contaminated" for row in rows.values())


def test_coverage_is_the_share_of_an_items_n_grams_over_all_documents_and_in_the_best(tmp_path: Path) -> None:
    words = QUESTION.split()
    config = write_items(tmp_path, item(QUESTION))
    texts = {"b": " ".join(words[:14]), "a": " ".join(words[-14:]), "c": " ".join(words[:13])}
    _, found = overlap(tmp_path / "store", texts, config, shards=3)
    (row,) = pq.read_table(found.local("items/maths.parquet")).to_pylist()
    grams = len(words) - 12
    assert (row["n_grams"], row["n_grams_found"], row["documents"]) == (grams, 4, 3)
    assert row["coverage"] == pytest.approx(4 / grams, abs=1e-4)
    assert (row["best_document"], row["best_coverage"]) == ("a", pytest.approx(2 / grams, abs=1e-4))


def test_what_is_left_out_of_a_row_is_counted_in_it(tmp_path: Path) -> None:
    questions = [prose(n) for n in range(4)]
    config = write_items(tmp_path, *map(item, questions))
    text = " and then a few words of its own ".join(questions)
    rows, found = overlap(tmp_path / "store", {"d": text}, config, most_listed=3)
    row = rows["d"]
    assert len(row["evaluation_items"]) == len(row["starts"]) == len(row["first_words"]) == 3
    assert (row["items_left_out"], row["spans_left_out"]) == (1, 1)
    assert found.read_json("report.json")["sets"]["maths"]["items_found"] == 4


def test_several_matches_can_be_asked_for(tmp_path: Path) -> None:
    config = write_items(tmp_path, item(QUESTION))
    texts = {"two": " ".join(QUESTION.split()[:14]), "three": " ".join(QUESTION.split()[:15])}
    rows, _ = overlap(tmp_path / "store", texts, config, minimum_matches=3)
    assert [name for name, row in rows.items() if row["reason"]] == ["three"]


def corpus(seed: int) -> tuple[dict[str, str], list[str]]:
    """Documents of which some hold parts of items, and the items."""
    draw = random.Random(seed)
    items = [" ".join(prose(1000 + n).split()[: draw.randint(4, 40)]) for n in range(30)]
    texts = {}
    for n in range(60):
        words = prose(n).split()
        for planted in draw.sample(items, draw.randint(0, 2)):
            part = planted.split()
            begin = draw.randint(0, max(0, len(part) - 13))
            at = draw.randint(0, len(words))
            words[at:at] = part[begin : begin + draw.randint(5, 30)]
        texts[f"d{n:02d}"] = " ".join(words)
    return texts, items


def brute_force(texts: dict[str, str], items: list[str], limit: int) -> dict[str, list[str]]:
    """Items of each document by sets of tuples of words."""

    def plain(text: str) -> list[str]:
        return [word for piece in text.split() for word in plain_words(piece)]

    def grams(words: list[str], size: int) -> set[tuple[str, ...]]:
        return {tuple(words[at : at + size]) for at in range(len(words) - size + 1)}

    looked_for = {}
    for number, text in enumerate(items, 1):
        words = plain(text)
        if len(words) >= 5:
            looked_for[f"maths/{number}"] = grams(words, min(13, len(words)))
    split = {name: plain(text) for name, text in texts.items()}
    sizes = {len(gram) for own in looked_for.values() for gram in own}
    held = {name: {gram for size in sizes for gram in grams(words, size)} for name, words in split.items()}
    common = {gram for own in looked_for.values() for gram in own if sum(gram in of for of in held.values()) > limit}
    return {
        name: sorted(number for number, own in looked_for.items() if (own - common) & of) for name, of in held.items()
    }


def test_what_is_found_is_what_sets_of_words_find(tmp_path: Path) -> None:
    texts, items = corpus(7)
    rows, _ = overlap(tmp_path / "store", texts, write_items(tmp_path, *map(item, items)), shards=4, common_documents=2)
    expected = brute_force(texts, items, 2)
    assert {name: row["evaluation_items"] for name, row in rows.items()} == expected
    assert 5 < sum(map(bool, expected.values())) < 55


def test_rows_and_report_are_the_same_for_every_sharding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Several files of counts already with few shards.
    monkeypatch.setattr(decontaminate_module, "_SHARDS_PER_PART", 2)
    texts, items = corpus(8)
    config = write_items(tmp_path, *map(item, items[:15]))
    other = write_items(tmp_path, *map(item, items[15:]), name="other")
    one, first = overlap(tmp_path / "1", texts, config, other, shards=1, common_documents=2)
    for shards in (2, 7):
        shuffled = list(texts.items())
        random.Random(shards).shuffle(shuffled)
        rows, found = overlap(tmp_path / str(shards), dict(shuffled), config, other, shards=shards, common_documents=2)
        assert rows == one
        for name in ("report.json", "report.html", "items/maths.parquet", "items/other.parquet"):
            assert found.read(name) == first.read(name)


def test_two_characters_of_a_script_without_spaces_weigh_as_much_as_a_word() -> None:
    items = [Item(0, "8", ("今天天气真很好",)), Item(0, "10", ("今天天气真很好我们去",)), Item(0, "w", ("a b c d e",))]
    _, owners = index_items(["set"], items, DecontaminationConfig())
    assert owners.states.tolist() == [TOO_SHORT, LOOKED_FOR, LOOKED_FOR]
    assert sorted(owners.lengths.tolist()) == [5, 10]


def test_n_grams_across_the_windows_of_a_long_text_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "_WINDOW", 7)
    texts, items = corpus(3)
    grams, _ = index_items(["set"], [Item(0, str(n), (text,)) for n, text in enumerate(items)], DecontaminationConfig())
    words = WordReader().read([" ".join(texts.values())]).hashes

    def hits() -> list[tuple[int, int]]:
        return sorted(pair for found in grams.find(words) for pair in zip(*map(np.ndarray.tolist, found), strict=True))

    pieces = hits()
    monkeypatch.undo()
    whole = hits()
    assert pieces == whole
    assert len(set(whole)) == len(whole) > 50


def test_every_n_gram_of_an_item_is_found_where_it_stands() -> None:
    grams, _ = index_items(["set"], [Item(0, "1", (prose(1),))], DecontaminationConfig())
    words = WordReader().read([f"{prose(2)} {prose(1)} {prose(3)}"]).hashes
    before, length = len(prose(2).split()), len(prose(1).split())
    ((numbers, places),) = grams.find(words)
    assert len(set(numbers.tolist())) == len(places)
    assert places.tolist() == list(range(before, before + length - 12))


def test_spans_that_touch_become_one() -> None:
    assert merged_spans(np.array([5, 0, 2, 10]), np.array([8, 3, 5, 12])) == [(0, 7), (10, 11)]


def test_two_sets_of_one_name_are_refused(tmp_path: Path) -> None:
    config = write_items(tmp_path, item(QUESTION))
    again = EvalFileConfig(name="maths", files=config.files, fields=("question",))
    with pytest.raises(StepError, match="two evaluation sets are called 'maths'"):
        overlap(tmp_path / "store", {"d": prose(1)}, config, again)


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
    items = [Item(0, str(n), (f"{template} {n} x{n}",)) for n in range(20_000)]
    items.append(Item(1, "0", (f"{template} {template}",)))
    _, owners = index_items(["maths", "other"], items, DecontaminationConfig())
    counts = np.diff(owners.starts)
    assert counts.max() == 20_001
    shared = int(counts.argmax())
    own = owners.items[owners.starts[shared] : owners.starts[shared + 1]]
    assert len(np.unique(own)) == len(own)
