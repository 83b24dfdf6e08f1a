"""The report of duplicate removal, on verdicts that are written by hand."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from marin.data.dedup.config import DedupConfig
from marin.data.dedup.report import write_report
from marin.data.dedup.report_page import word_changes
from marin.data.documents.artifacts import Attributes, Documents
from marin.data.documents.attributes import attributes_of, write_attributes
from marin.data.documents.io import read_shard
from marin.execution import StepError, current_run, materialise, step
from tests.data.dedup.texts import changed, prose
from tests.data.pages import Page, PageSet, spread, write_pages

FUZZY, EXACT, URL = "duplicate_fuzzy", "duplicate_exact", "duplicate_url"


@dataclass(frozen=True)
class Verdict:
    """The row of a document that is in a cluster; it stays without a reason."""

    id: str
    cluster: str
    reason: str | None = None
    duplicate_of: str | None = None
    containment: float | None = None


@dataclass(frozen=True)
class Written:
    """Verdicts to write; documents without one are in no cluster."""

    verdicts: tuple[Verdict, ...]


@step("test/verdicts", version="1", fans_out=True)
def reported(pages: tuple[Documents, ...], config: Written) -> Attributes:
    """Write verdicts as the step does, and the report."""
    rows = {verdict.id: verdict for verdict in config.verdicts}
    shards = []
    for documents in pages:
        for shard in documents.shards:
            ids = read_shard(documents, shard, columns=("id",)).column("id").to_pylist()
            found = [rows.get(document_id) for document_id in ids]
            columns = {
                "id": pa.array(ids, pa.string()),
                **{
                    name: pa.array([row and getattr(row, name) for row in found], kind)
                    for name, kind in (
                        ("reason", pa.string()),
                        ("duplicate_of", pa.string()),
                        ("containment", pa.float64()),
                        ("cluster", pa.string()),
                    )
                },
            }
            shards.append(write_attributes(current_run().write, documents, shard, pa.table(columns), stem="duplicates"))
    write_report(pages, shards, DedupConfig(), further={"uncompared": 3})
    return attributes_of("duplicates", shards)


WEB = {
    "a": prose(1),
    "b": changed(prose(1), 3),
    "c": "The heat\tof NOON <script>alert(1)</script> lay over the old harbour town.",
    "d": prose(2),
    "e": prose(3),
    "h": prose(4),
}
BOOKS = {
    "f": changed(prose(1), 2, seed=5),
    "g": "the heat of noon <script>alert(1)</script> lay over the old harbour town.",
    "i": "Another page at the same address.",
}
VERDICTS = (
    Verdict("a", "a"),
    Verdict("b", "a", FUZZY, "a", 0.9),
    Verdict("f", "a", FUZZY, "a", 0.9),
    Verdict("c", "c"),
    Verdict("g", "c", EXACT, "c", 1.0),
    Verdict("h", "h"),
    Verdict("i", "h", URL, "h"),
    Verdict("d", "d"),
    Verdict("e", "d"),
)


def pages(shards: int) -> tuple[Documents, ...]:
    """Two sources; h and i have one address."""
    sets = (("web", WEB), ("books", BOOKS))
    address = {"h": "http://one.invalid/page", "i": "https://one.invalid/page#part"}
    return tuple(
        write_pages(
            PageSet(
                source,
                spread(
                    [
                        Page(text, address.get(name, f"http://{source}.invalid/{name}"), id=name)
                        for name, text in texts.items()
                    ],
                    shards,
                ),
            )
        )
        for source, texts in sets
    )


def report(place: Path, verdicts: tuple[Verdict, ...] = VERDICTS, shards: int = 2) -> tuple[dict[str, Any], str]:
    """The report as JSON and as a page."""
    made = materialise(reported(pages(shards), Written(verdicts)), prefix=str(place))
    found: dict[str, Any] = json.loads(made.local("report.json").read_text())
    return found, made.local("report.html").read_text()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    return report(tmp_path_factory.mktemp("p"))


def size(*texts: str) -> int:
    return sum(len(text.encode()) for text in texts)


def test_removed_documents_and_bytes_are_told_by_source_and_reason(both: tuple[dict[str, Any], str]) -> None:
    found, _ = both
    assert (found["documents"], found["kept"], found["uncompared"]) == (9, 5, 3)
    assert found["text_bytes"] == size(*WEB.values(), *BOOKS.values())
    assert found["removed"] == {EXACT: 1, FUZZY: 2, URL: 1}
    assert found["removed_bytes"] == {EXACT: size(BOOKS["g"]), FUZZY: size(WEB["b"], BOOKS["f"]), URL: size(BOOKS["i"])}
    assert found["by_source"] == {
        "books": {
            EXACT: {"documents": 1, "text_bytes": size(BOOKS["g"])},
            FUZZY: {"documents": 1, "text_bytes": size(BOOKS["f"])},
            URL: {"documents": 1, "text_bytes": size(BOOKS["i"])},
        },
        "web": {FUZZY: {"documents": 1, "text_bytes": size(WEB["b"])}},
    }


def test_it_is_told_in_which_source_the_document_that_stays_lies(both: tuple[dict[str, Any], str]) -> None:
    found, _ = both
    assert found["pairs"] == [
        {"source": "books", "of": "web", "documents": 3, "text_bytes": size(*BOOKS.values())},
        {"source": "web", "of": "web", "documents": 1, "text_bytes": size(WEB["b"])},
    ]


def test_clusters_are_counted_by_size_and_the_largest_named_with_who_stays(both: tuple[dict[str, Any], str]) -> None:
    found, _ = both
    assert found["clusters"] == 4
    assert found["cluster_sizes"] == {"2": 4}  # a bin holds 2 and 3
    largest = found["largest_clusters"]
    assert [cluster["documents"] for cluster in largest] == [3, 2, 2, 2]
    assert largest[0] == {
        "id": "a",
        "documents": 3,
        "text_bytes": size(WEB["a"], WEB["b"], BOOKS["f"]),
        "kept": 1,
        "survivors": [{"id": "a", "url": "http://web.invalid/a"}],
        "members": ["b", "f"],
    }
    (apart,) = [cluster for cluster in largest if cluster["id"] == "d"]
    assert (apart["kept"], apart["members"]) == (2, [])


def test_removals_that_hold_up_and_such_that_do_not_are_told_apart(
    both: tuple[dict[str, Any], str], tmp_path: Path
) -> None:
    found, _ = both
    assert found["sample"] == {"documents": 4, "precision": 1.0, "wrong": []}
    wrong = (*(row for row in VERDICTS if row.id != "e"), Verdict("e", "d", FUZZY, "d", 0.99))
    judged, page = report(tmp_path, wrong)
    assert judged["sample"]["precision"] == 0.8
    (one,) = judged["sample"]["wrong"]
    assert (one["id"], one["duplicate_of"], one["stated"]) == ("e", "d", 0.99)
    assert one["found"] < 0.5
    assert "80.00 %" in page


def test_exact_copies_must_have_the_same_words_and_url_copies_the_same_address(tmp_path: Path) -> None:
    swapped = tuple(
        replace(row, reason={EXACT: URL, FUZZY: EXACT}.get(row.reason or "", row.reason)) for row in VERDICTS
    )
    judged, _ = report(tmp_path, swapped)
    assert sorted(one["id"] for one in judged["sample"]["wrong"]) == ["b", "f", "g"]


def test_any_number_of_shards_gives_the_same_report(both: tuple[dict[str, Any], str], tmp_path: Path) -> None:
    assert report(tmp_path, shards=1) == both


def test_the_page_stands_alone_and_text_of_documents_is_no_markup(both: tuple[dict[str, Any], str]) -> None:
    _, page = both
    assert "<script" not in page and "&lt;script&gt;alert(1)" in page
    assert not re.search(r"(?:src|href)=", page)
    assert "http://web.invalid/a" in page
    assert re.search(r"duplicate_fuzzy: 0\.9000 of it\s+is in <code>a</code>", page)
    assert re.search(r"duplicate_url: it\s+gives way to <code>h</code>", page)
    assert re.search(r"<del>[^<]+</del>\s*<ins>changed0x", page)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (Verdict("b", "a", FUZZY, None, 0.9), "no document that stays"),
        (Verdict("b", "a", FUZZY, "f", 0.9), "does not stay"),
        (Verdict("b", "c", FUZZY, "a", 0.9), "in another cluster"),
    ],
)
def test_a_removal_that_cannot_be_traced_to_a_survivor_fails(row: Verdict, said: str, tmp_path: Path) -> None:
    with pytest.raises(StepError, match=said):
        report(tmp_path, tuple(row if one.id == row.id else one for one in VERDICTS))


def test_nothing_removed_and_nothing_at_all_make_a_report_too(tmp_path: Path) -> None:
    found, page = report(tmp_path / "one", ())
    assert (found["kept"], found["clusters"], found["sample"]["precision"]) == (9, 0, None)
    assert "nothing to check" in page
    empty = materialise(reported((), Written(())), prefix=str(tmp_path / "two"))
    assert json.loads(empty.local("report.json").read_text())["documents"] == 0


def test_changes_show_what_differs_and_leave_out_long_equal_runs() -> None:
    words = [f"w{number}" for number in range(60)]
    member = [*words[:30], "new", "words", *words[31:]]
    assert word_changes(" ".join(words), " ".join(member)) == [
        ("left out", "18 equal words"),
        ("same", " ".join(words[18:30])),
        ("gone", "w30"),
        ("come", "new words"),
        ("same", " ".join(words[31:43])),
        ("left out", "17 equal words"),
    ]
    assert word_changes("a b c", "a b c") == [("same", "a b c")]
