"""Cutting repeated passages: what is left of texts, and what is told of it."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin.cli.main import main
from marin.data.consolidation.config import Policy
from marin.data.consolidation.cutting import cut, merged
from marin.data.documents.artifacts import Documents
from marin.data.documents.normalise import normalise_text
from marin.data.documents.schema import FATES, text_hash
from marin.data.filtering.config import LanguageConfig, Rules
from marin.execution import StepError
from tests.data.consolidation.marking import Marked
from tests.data.consolidation.test_consolidate import rows, run
from tests.data.dedup.texts import prose
from tests.data.pages import Page

FOOTER = "Share this page with your friends."
BANNER = "We use cookies to make this page better for you."


@pytest.mark.parametrize(
    ("text", "passages", "left"),
    [
        ("one\nFOOT\ntwo", ("FOOT\n",), "one\ntwo"),
        ("one\nFOOT\ntwo", ("FOOT",), "one\ntwo"),
        ("one\nFOOT\ntwo", ("\nFOOT",), "one\ntwo"),
        ("one\n\nFOOT\n\ntwo", ("FOOT\n",), "one\n\ntwo"),
        ("one\n\nFOOT\ntwo", ("FOOT\n",), "one\n\ntwo"),
        ("one\nFOOT\n\nHEAD\ntwo", ("FOOT\n", "HEAD\n"), "one\n\ntwo"),
        ("one\nFOOT\n\nHEAD\ntwo", ("FOOT", "HEAD"), "one\n\ntwo"),
        ("one\nFOOT\nHEAD\ntwo", ("FOOT", "HEAD"), "one\ntwo"),
        ("one\n\nFOOT\nHEAD\n\n\ntwo", ("FOOT\nHEAD",), "one\n\n\ntwo"),
        ("one FOOT\ntwo", (" FOOT",), "one\ntwo"),
        ("one FOOT\ntwo", ("FOOT\n",), "one two"),
        ("HEAD\n\none", ("HEAD\n",), "one"),
        ("one\n\nFOOT", ("FOOT",), "one"),
        ("one\n\nFOOT\n", ("FOOT",), "one"),
        ("HEAD\nFOOT", ("HEAD", "FOOT"), ""),
        ("HEAD \n FOOT\n", ("HEAD", "FOOT"), ""),
        ("one (HEAD) two", ("(HEAD) ",), "one two"),
        ("one HEAD FOOT two", (" HEAD FOOT ",), "one two"),
        ("oneHEADtwo", ("HEAD",), "onetwo"),
        ("\none\n", ("FOOT",), "\none\n"),
        ("one\nFOOT\ntwo\n", ("FOOT\n",), "one\ntwo\n"),
        ("eFOOT\u0301x", ("FOOT",), "\u00e9x"),
    ],
)
def test_what_is_left_of_a_text(text: str, passages: tuple[str, ...], left: str) -> None:
    spans = [found.span() for found in re.finditer("|".join(map(re.escape, passages)), text)]
    assert cut(text, spans) == left


@given(st.text("ab \n\u0301e", max_size=30), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=5))
def test_everything_outside_of_the_spans_stays_in_order(text: str, places: list[tuple[int, int]]) -> None:
    text = normalise_text(text)
    wanted = [(min(pair), min(max(pair), len(text))) for pair in places if min(pair) < min(max(pair), len(text))]
    spans = merged(wanted)
    covered = {at for begin, end in wanted for at in range(begin, end)}
    assert [at for begin, end in spans for at in range(begin, end)] == sorted(covered)
    assert all(one[1] < other[0] for one, other in itertools.pairwise(spans))
    left = cut(text, spans)
    assert normalise_text(left) == left
    rest = "".join(sign for at, sign in enumerate(text) if at not in covered)
    assert normalise_text("".join(left.split())) == normalise_text("".join(rest.split()))


TEXT = prose(800)
FIRST, REST = TEXT[:400], TEXT[400:]
EXTRA = (
    Page(f"{BANNER}\n{FIRST}\n{FOOTER}\n{REST} jane@mail.org\n{FOOTER}", url="http://web.invalid/cut"),
    Page(f"{BANNER} {BANNER}\n{FOOTER} {FOOTER}\n" * 8, url="http://web.invalid/banners"),
    Page(f"{FOOTER}", url="http://web.invalid/footer"),
)
MARKED = (Marked("lines", (f"{BANNER}\n", f"{FOOTER}\n", BANNER, FOOTER)), Marked("spans", (FOOTER[6:], FIRST[-50:])))
EVERYTHING = LanguageConfig(keep=(), minimum_score=0.0)
POLICY = Policy(rules=Rules(repetition=None, words=None, sentences=None, lines=None), language=EVERYTHING)


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("p")


@pytest.fixture(scope="module")
def clean(prefix: Path) -> Documents:
    return run(prefix, 2, POLICY, extra=EXTRA, marked=MARKED)


def fates(clean: Documents) -> dict[str, dict[str, Any]]:
    found = [row for name in clean.names(f"{FATES}*") for row in pq.read_table(clean.open(name)).to_pylist()]
    return {row["id"]: row for row in found}


def test_the_union_of_all_kinds_is_cut_before_anything_else_is_done_with_the_text(clean: Documents) -> None:
    ((shard, document),) = [pair for pair in rows(clean) if pair[1].url == "http://web.invalid/cut"]
    assert document.text == f"{FIRST[:-50]}\n{REST} email@example.com"
    assert document.text_hash == text_hash(document.text)
    of_shard = [one for of, one in rows(clean) if of == shard]
    assert shard.text_bytes == sum(len(one.text.encode()) for one in of_shard)


def test_characters_are_counted_by_kind_and_all_together_once(clean: Documents) -> None:
    lines = len(f"{BANNER}\n{FOOTER}\n{FOOTER}")
    spans = 50 + 2 * len(FOOTER[6:])
    union = lines + 50
    counts = clean.read_json("counts.json")["cuts"]
    assert counts == {
        "all": {"documents": 1, "characters": union},
        "lines": {"documents": 1, "characters": lines},
        "spans": {"documents": 1, "characters": spans},
    }
    card, report = clean.read("README.md").decode(), clean.read("report.html").decode()
    for kind, row in counts.items():
        assert f"| {kind} | 1 | {row['characters']} |" in card
        assert f'<td>{kind}</td><td class="number">1</td><td class="number">{row["characters"]}</td>' in report
    assert f"cut_lines: {lines} of {len(EXTRA[0].text)} characters" in report
    assert f"{BANNER}\n\n[…]\n{FOOTER}" in report


def test_a_document_of_which_nothing_is_left_is_dropped_for_that(clean: Documents) -> None:
    counts = clean.read_json("counts.json")
    assert counts["dropped"]["nothing_left"] == 2
    assert counts["read"] == 55 == counts["kept"] + sum(counts["dropped"].values())
    found = fates(clean)
    left = [row for row in found.values() if row["reason"] == "nothing_left"]
    banners = len(EXTRA[1].text)
    assert {row["why"] for row in left} == {
        f"{banners - 16} of {banners} characters are repeated elsewhere",
        f"{len(FOOTER)} of {len(FOOTER)} characters are repeated elsewhere",
    }
    assert all(row["cut_characters"] is None for row in left)
    (kept,) = [row for row in found.values() if row["cut_characters"] is not None]
    assert kept["cut_characters"] == counts["cuts"]["all"]["characters"] and kept["reason"] is None


def test_a_policy_can_leave_repeated_passages_in(clean: Documents, tmp_path: Path) -> None:
    other = run(tmp_path, 2, replace(POLICY, cut_repeated=False), extra=EXTRA, marked=MARKED)
    texts = {document.url: document.text for _, document in rows(other)}
    for page in EXTRA:
        assert texts[page.url] == page.text.replace("jane@mail.org", "email@example.com")
    assert other.read_json("counts.json")["cuts"] == {}
    assert "Passages that were cut" not in other.read("report.html").decode()


def test_find_shows_what_was_cut(clean: Documents, prefix: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = {}
    for page in EXTRA[:2]:
        with pytest.raises(SystemExit) as stop:
            main(["documents", "find", page.url, "--prefix", str(prefix)])
        assert stop.value.code == 0
        shown[page.url] = capsys.readouterr().out
    cut_out = shown["http://web.invalid/cut"]
    characters = clean.read_json("counts.json")["cuts"]["all"]["characters"]
    assert re.search(rf"kept +\w+/web/.*, {characters} characters cut", cut_out)
    assert re.search(rf"characters 0 to {len(BANNER) + 1} +{re.escape(BANNER)}$", cut_out, re.MULTILINE)
    assert "dropped     nothing_left: " in shown["http://web.invalid/banners"]


def test_passages_that_do_not_lie_in_the_text_are_refused_by_shard_and_row(tmp_path: Path) -> None:
    with pytest.raises(StepError, match=r"lines of row 0 of pages-0.*do not lie in its text"):
        run(tmp_path, 1, POLICY, marked=[Marked("lines", (), beyond=True)])
    with pytest.raises(StepError, match="kinds lines, lines"):
        run(tmp_path, 1, POLICY, marked=[Marked("lines", ("a",)), Marked("lines", ("b",))])
