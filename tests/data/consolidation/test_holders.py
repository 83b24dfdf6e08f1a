"""Repeated passages are cut only where their text stays in a document that is kept, of the same split."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from marin.cli.main import main
from marin.data.consolidation import bundles, holders, judging
from marin.data.consolidation.config import Policy, TakedownConfig, TakedownEntry
from marin.data.consolidation.holders import CLAIMS, left_among
from marin.data.dedup.spans_config import SpanConfig
from marin.data.documents.split import split_of
from marin.execution import StepError
from tests.data.consolidation.holding import Doc, Passage, consolidated, fates, ids, texts

HOLDER, FIRST, SECOND, THIRD = ids(4)
OWN = {one: f"Only here does one read the words of page {number}." for number, one in enumerate(ids(4))}
TEXT = " ".join(f"word{number}" for number in range(60))
HALF = TEXT[: TEXT.index(" word30")]


def page(name: str, passage: str = TEXT, place: int | None = 0, of: str = HOLDER) -> Doc:
    """A page of a passage and words of its own; the passage stays in some place of another page, or is held."""
    marked = () if place is None else (Passage(0, len(passage), f"{of}:{place}-{place + len(passage)}"),)
    return Doc(name, f"{passage}\n{OWN[name]}", passages=marked)


def lost(doc: Doc) -> Doc:
    return replace(doc, contaminated=True)


PAGES = (page(HOLDER, place=None), page(FIRST), page(SECOND), page(THIRD))


def test_a_passage_is_cut_where_the_document_that_holds_it_stays(tmp_path: Path) -> None:
    clean = consolidated(tmp_path, PAGES)
    assert texts(clean) == OWN | {HOLDER: PAGES[0].text}
    nothing = {"documents": 0, "passages": 0, "characters": 0}
    assert clean.read_json("counts.json")["left"] == {"dropped": nothing, "other_split": nothing}
    assert {row["left_characters"] for row in fates(clean).values()} == {None}


def test_without_any_passage_everything_stays_as_it_is(tmp_path: Path) -> None:
    docs = [replace(doc, passages=()) for doc in PAGES]
    assert texts(consolidated(tmp_path, docs)) == {doc.id: doc.text for doc in docs}


@pytest.mark.parametrize("shards", [1, 3])
def test_the_least_of_those_that_point_to_a_dropped_document_keeps_the_text(tmp_path: Path, shards: int) -> None:
    clean = consolidated(tmp_path, (lost(PAGES[0]), *PAGES[1:]), shards=shards)
    assert texts(clean) == {FIRST: PAGES[1].text, SECOND: OWN[SECOND], THIRD: OWN[THIRD]}
    assert {name: row["left_characters"] for name, row in fates(clean).items() if row["left_characters"]} == {
        FIRST: len(TEXT)
    }
    counts = clean.read_json("counts.json")
    assert counts["left"]["dropped"] == {"documents": 1, "passages": 1, "characters": len(TEXT)}
    assert counts["cuts"]["spans"] == {"documents": 2, "characters": 2 * len(TEXT)} == counts["cuts"]["all"]
    assert f"| dropped | 1 | 1 | {len(TEXT)} |" in clean.read("README.md").decode()
    row = f'<td>dropped</td><td class="number">1</td><td class="number">1</td><td class="number">{len(TEXT)}</td>'
    assert row in clean.read("report.html").decode()


def test_it_does_not_matter_why_the_holder_is_dropped(tmp_path: Path) -> None:
    listed = Policy(takedown=TakedownConfig(entries=(TakedownEntry(HOLDER, "asked for"),)))
    taken = consolidated(tmp_path, PAGES, listed)
    filtered = consolidated(tmp_path, (replace(PAGES[0], reason="gopher_few_words"), *PAGES[1:]))
    elsewhere = consolidated(tmp_path, PAGES[1:])
    for clean in (taken, filtered, elsewhere):
        assert texts(clean) == {FIRST: PAGES[1].text, SECOND: OWN[SECOND], THIRD: OWN[THIRD]}
        assert clean.read_json("counts.json")["left"]["dropped"]["passages"] == 1


def test_those_that_are_dropped_themselves_take_no_role(tmp_path: Path) -> None:
    clean = consolidated(tmp_path, (lost(PAGES[0]), lost(PAGES[1]), *PAGES[2:]))
    assert texts(clean) == {SECOND: PAGES[2].text, THIRD: OWN[THIRD]}


def test_a_document_that_is_nothing_but_a_passage_stays_when_its_holder_is_dropped(tmp_path: Path) -> None:
    whole = Doc(FIRST, TEXT, passages=(Passage(0, len(TEXT), f"{HOLDER}:0-{len(TEXT)}"),))
    assert fates(consolidated(tmp_path, (PAGES[0], whole)))[FIRST]["reason"] == "nothing_left"
    clean = consolidated(tmp_path, (lost(PAGES[0]), whole, PAGES[2]))
    assert texts(clean) == {FIRST: TEXT, SECOND: OWN[SECOND]}
    assert fates(clean)[FIRST]["cut_characters"] is None


def test_a_passage_that_another_one_has_a_part_of_stays_whole(tmp_path: Path) -> None:
    half = page(FIRST, HALF)
    clean = consolidated(tmp_path, (lost(PAGES[0]), half, *PAGES[2:]))
    assert texts(clean) == {FIRST: half.text, SECOND: PAGES[2].text, THIRD: OWN[THIRD]}
    # The other way round the part lies within what the least one keeps.
    half = page(SECOND, HALF)
    clean = consolidated(tmp_path, (lost(PAGES[0]), PAGES[1], half))
    assert texts(clean) == {FIRST: PAGES[1].text, SECOND: OWN[SECOND]}


def test_of_a_chain_each_link_asks_for_its_own_holder_only(tmp_path: Path) -> None:
    # FIRST repeats a passage of HOLDER, and holds another one that SECOND and THIRD repeat.
    other = TEXT.upper()
    begins = len(PAGES[1].text) + 1
    first = replace(PAGES[1], text=f"{PAGES[1].text}\n{other}")
    rest = (page(SECOND, other, begins, FIRST), page(THIRD, other, begins, FIRST))
    clean = consolidated(tmp_path, (lost(PAGES[0]), first, *rest))
    assert texts(clean) == {FIRST: first.text, SECOND: OWN[SECOND], THIRD: OWN[THIRD]}
    clean = consolidated(tmp_path, (PAGES[0], lost(first), *rest))
    assert texts(clean) == {HOLDER: PAGES[0].text, SECOND: rest[0].text, THIRD: OWN[THIRD]}


def of_split(split: str) -> list[str]:
    return [one for one in ids(40) if split_of(one, 0.5) == split]


@pytest.mark.parametrize(("holding", "pointing"), [("validation", "train"), ("train", "validation")])
def test_each_split_keeps_a_text_of_its_own(tmp_path: Path, holding: str, pointing: str) -> None:
    (holder, near, *_), (least, other, *_) = of_split(holding), of_split(pointing)
    end = len(TEXT)
    docs = [
        Doc(name, f"{TEXT}\n{name} alone.", passages=(Passage(0, end, f"{holder}:0-{end}"),) if name != holder else ())
        for name in (holder, near, least, other)
    ]
    clean = consolidated(tmp_path, docs, share=0.5, shards=2)
    whole = {doc.id: doc.text for doc in docs}
    alone = {doc.id: f"{doc.id} alone." for doc in docs}
    assert texts(clean) == {holder: whole[holder], near: alone[near], least: whole[least], other: alone[other]}
    left = clean.read_json("counts.json")["left"]
    assert left["other_split"] == {"documents": 1, "passages": 1, "characters": end}
    assert left["dropped"]["passages"] == 0


def test_find_tells_that_a_passage_was_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    consolidated(tmp_path, (lost(PAGES[0]), *PAGES[1:]))
    shown = {}
    for name in (FIRST, SECOND):
        with pytest.raises(SystemExit) as stop:
            main(["documents", "find", name, "--prefix", str(tmp_path)])
        assert stop.value.code == 0
        shown[name] = capsys.readouterr().out
    assert re.search(rf"kept .*, {len(TEXT)} repeated ones left, since no other document", shown[FIRST])
    assert re.search(rf"kept .*, {len(TEXT)} characters cut \[", shown[SECOND])


@pytest.mark.parametrize("place", ["nowhere", f"{HOLDER}:5", f"{HOLDER}:a-b", ":1-2"])
def test_a_place_that_cannot_be_read_is_named(tmp_path: Path, place: str) -> None:
    doc = replace(PAGES[1], passages=(Passage(0, 10, place),))
    with pytest.raises(StepError, match=re.escape(f"stays in {place!r}")):
        consolidated(tmp_path, (PAGES[0], doc))


def random_docs(draw: random.Random, count: int) -> list[Doc]:
    """Documents made of few phrases, whose words stand in no other phrase."""
    phrases = [[f"p{n}w{at}" for at in range(draw.randint(6, 15))] for n in range(count)]
    docs = []
    for name in draw.sample(ids(100), count):
        words = [word for _ in range(draw.randint(2, 6)) for word in phrases[int(count * draw.random() ** 2)]]
        cut = draw.randint(0, 4)
        fate = draw.random()
        reason = "gopher_few_words" if fate < 0.2 else None
        docs.append(Doc(name, " ".join(words[cut:]), reason, contaminated=fate > 0.8))
    return docs


def words_of(docs: Sequence[tuple[str, str]]) -> dict[str, set[str]]:
    """The words of texts, by the split of their ids."""
    found: dict[str, set[str]] = {"train": set(), "validation": set()}
    for name, text in docs:
        found[split_of(name, 0.3)].update(text.split())
    return found


@pytest.mark.parametrize("seed", range(4))
def test_no_word_of_the_documents_that_stay_is_lost_from_their_split(tmp_path: Path, seed: int) -> None:
    docs = random_docs(random.Random(seed), 60)
    stay = [doc for doc in docs if doc.reason is None and not doc.contaminated]
    clean = consolidated(tmp_path, docs, share=0.3, shards=3, spans=SpanConfig(least_words=5))
    found = texts(clean)
    assert words_of(list(found.items())) == words_of([(doc.id, doc.text) for doc in stay])
    counts = clean.read_json("counts.json")
    assert counts["left"]["dropped"]["passages"] and counts["left"]["other_split"]["passages"]
    assert counts["cuts"]["spans"]["characters"] > sum(one["characters"] for one in counts["left"].values()) / 4
    left = sum(row["left_characters"] or 0 for row in fates(clean).values())
    assert left == sum(one["characters"] for one in counts["left"].values())


def test_files_are_the_same_bytes_however_the_work_is_cut_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docs = random_docs(random.Random(7), 60)

    def files(name: str) -> dict[str, bytes]:
        clean = consolidated(tmp_path / name, docs, share=0.3, shards=4, spans=SpanConfig(least_words=5))
        return {one: clean.read(one) for one in clean.names()}

    whole = files("one")
    monkeypatch.setattr(judging, "_TASK_ROWS", 1)
    monkeypatch.setattr(holders, "_PARTITION_ROWS", 7)
    assert files("other") == whole


def test_what_is_left_is_the_same_for_every_sharding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docs = random_docs(random.Random(8), 60)
    found = [
        consolidated(tmp_path, draw, share=0.3, shards=shards, spans=SpanConfig(least_words=5))
        for shards, draw in ((1, docs), (3, docs[::-1]))
    ]
    # Every shard is written by a task of its own.
    monkeypatch.setattr(bundles, "_BUNDLE_BYTES", 1)
    monkeypatch.setattr(bundles, "ROW_GROUP_BYTES", 1)
    found.append(consolidated(tmp_path, docs, share=0.3, shards=4, spans=SpanConfig(least_words=5)))
    assert {shard.name.rsplit("/", 1)[1][:5] for shard in found[2].shards} == {f"{n:05d}" for n in range(4)}
    assert len({tuple(sorted(texts(clean).items())) for clean in found}) == 1
    assert found[0].read_json("counts.json") == found[1].read_json("counts.json") == found[2].read_json("counts.json")


@pytest.mark.parametrize("seed", range(20))
def test_who_keeps_a_text_is_what_a_plain_reading_of_the_rule_says(seed: int) -> None:
    draw = random.Random(seed)
    claims = []
    for number in range(draw.randint(0, 60)):
        start = draw.randint(0, 12)
        claims.append(
            {
                "holder": draw.choice("ABC"),
                "start": start,
                "end": start + draw.randint(1, 8),
                "id": draw.choice("klmnopqrst"),
                "number": number,
                "kind": draw.randint(0, 1),
                "span": 0,
                "apart": draw.randint(0, 1),
            }
        )
    found = left_among(pa.Table.from_pylist(claims, schema=CLAIMS), pa.array(["B"]))
    order: Callable[[dict[str, object]], tuple[object, object]] = lambda one: (one["id"], one["number"])  # noqa: E731
    stays: list[dict[str, object]] = []
    for one in sorted(claims, key=order):
        stands = any(
            all(one[name] == other[name] for name in ("holder", "kind", "apart"))
            and other["start"] <= one["start"]  # type: ignore[operator]
            and one["end"] <= other["end"]  # type: ignore[operator]
            for other in stays
        )
        if not stands:
            stays.append(one)
    expected = sorted((one["number"], one["kind"], 0, one["holder"] != "B") for one in stays)
    assert sorted(tuple(row.values()) for row in found.to_pylist()) == expected
