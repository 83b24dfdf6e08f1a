"""The takedown list: what it names goes, with its copies, and is counted."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from marin.data.consolidation.config import Policy, TakedownConfig, TakedownEntry
from marin.data.consolidation.takedown import TakedownList, load_takedowns, with_lists_of_now
from marin.data.documents.addresses import canonical_url
from marin.data.documents.schema import FATES
from marin.execution import External, StepError
from tests.data.consolidation.test_consolidate import rows, run
from tests.data.dedup.texts import prose

ID = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    "url",
    [
        "http://example.org/a",
        "https://example.org/a/",
        "HTTPS://EXAMPLE.org:443/a#part",
        " http://example.org:80/a ",
    ],
)
def test_a_page_is_found_however_its_address_is_written(url: str) -> None:
    entry = TakedownEntry("https://example.org/a", "asked for")
    assert TakedownList([entry]).find(ID, url) is entry


@pytest.mark.parametrize(
    "url",
    ["https://example.org/A", "https://example.org/a/b", "https://example.org/a?p=1", "https://example.com/a", None],
)
def test_other_pages_are_not_meant(url: str | None) -> None:
    assert TakedownList([TakedownEntry("https://example.org/a", "asked for")]).find(ID, url) is None


def test_a_star_means_all_addresses_below_and_no_other_host() -> None:
    site = TakedownList([TakedownEntry("https://example.org*", "asked for")])
    assert site.find(ID, "http://example.org") and site.find(ID, "https://example.org/any/page?x=1")
    assert site.find(ID, "https://example.organic/any") is None
    folder = TakedownList([TakedownEntry("https://example.org/b/*", "asked for")])
    assert folder.find(ID, "https://example.org/b") and folder.find(ID, "https://example.org/b/c")
    assert folder.find(ID, "https://example.org/bc") is None


@pytest.mark.parametrize(
    ("what", "reason", "field"),
    [
        ("example.org/a", "asked for", "what"),
        ("0123", "asked for", "what"),
        ("https://*.example.org/", "asked for", "what"),
        (ID, " ", "reason"),
    ],
)
def test_entries_without_a_document_or_reason_are_refused(what: str, reason: str, field: str) -> None:
    with pytest.raises(ValueError, match=field):
        TakedownEntry(what, reason)


def test_a_broken_url_is_compared_as_it_stands() -> None:
    assert canonical_url("http://[broken/") == "http://[broken/"
    assert canonical_url("no url") == "no url"


def test_files_hold_an_entry_a_line_and_a_wrong_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text(f"# asked for in May\n\n{ID}\tright to be forgotten\nhttps://example.org/*  a court order\n")
    found = load_takedowns(TakedownConfig(files=(External(str(path), "1"),)))
    assert [(entry.what, entry.reason) for entry in found.entries] == [
        (ID, "right to be forgotten"),
        ("https://example.org/*", "a court order"),
    ]
    path.write_text(f"{ID} asked for\n{ID}\n")
    with pytest.raises(StepError, match="line 2"):
        load_takedowns(TakedownConfig(files=(External(str(path), "1"),)))


def test_listed_documents_are_gone_from_the_shards_counted_and_shown_without_their_text(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("https://web.invalid/3 the author asked for it\nhttp://web.invalid/none nobody has it\n")
    policy = Policy(
        takedown=TakedownConfig(
            files=(External(str(path), "2026-11"),),
            entries=(TakedownEntry("http://books.invalid/1*", "a court order"),),
        )
    )
    clean = run(tmp_path / "p", 2, policy)
    urls = {document.url for _, document in rows(clean)}
    assert urls.isdisjoint({"http://web.invalid/3", "http://web.invalid/copy"})
    assert not any(url.startswith("http://books.invalid/1") for url in urls)
    assert "http://web.invalid/4" in urls and "http://books.invalid/2" in urls
    counts = clean.read_json("counts.json")
    listed = {entry["what"]: entry["documents"] for entry in counts["takedowns"]}
    assert listed == {"https://web.invalid/3": 1, "http://web.invalid/none": 0, "http://books.invalid/1*": 11}
    # Page 3, its copy, and pages 1 and 10 to 19 of the books.
    assert counts["dropped"]["takedown"] == 2 + 11
    assert counts["read"] == counts["kept"] + sum(counts["dropped"].values())
    report = clean.read("report.html").decode()
    assert "a court order" in report
    assert prose(3)[:40] not in report


def test_every_document_that_came_in_has_a_fate_beside_its_shard(tmp_path: Path) -> None:
    clean = run(tmp_path, 3)
    found: list[dict[str, Any]] = []
    for name in clean.names(f"{FATES}*"):
        with clean.open(name) as stream:
            found += pq.read_table(stream).to_pylist()
    counts = clean.read_json("counts.json")
    assert len(found) == counts["read"]
    reasons = [fate["reason"] for fate in found if fate["reason"] is not None]
    assert {reason: reasons.count(reason) for reason in reasons} == counts["dropped"]
    kept = {fate["id"]: fate for fate in found if fate["reason"] is None}
    stored = {document.id: shard for shard, document in rows(clean)}
    assert kept.keys() == stored.keys()
    for document_id, shard in stored.items():
        fate = kept[document_id]
        assert (fate["split"], fate["topic"], fate["quality"]) == (shard.split, shard.topic, shard.quality)
        assert f"/{fate['bundle']:05d}-" in shard.name
    (copy,) = [fate for fate in found if fate["reason"] == "duplicate_exact"]
    assert copy["why"] in stored


# --- a list that changes, and entries that name nothing ---


def lists(path: Path) -> Policy:
    return Policy(takedown=TakedownConfig(files=(External(str(path), "2026-11"),)))


def test_what_a_list_holds_joins_its_version_wherever_it_lies(tmp_path: Path) -> None:
    first, second = tmp_path / "list.txt", tmp_path / "moved.txt"
    first.write_text(f"{ID} asked for\n")
    second.write_text(first.read_text())
    (one,) = with_lists_of_now(lists(first)).takedown.files
    (same,) = with_lists_of_now(lists(second)).takedown.files
    assert (one.path, same.path) == (str(first), str(second))
    assert one.version == same.version == f"2026-11+sha256:{hashlib.sha256(first.read_bytes()).hexdigest()[:32]}"
    first.write_text(f"{ID} asked for\nhttps://example.org/a asked for\n")
    (longer,) = with_lists_of_now(lists(first)).takedown.files
    assert longer.version != one.version
    plain = Policy(takedown=TakedownConfig(entries=(TakedownEntry(ID, "asked for"),)))
    assert with_lists_of_now(plain) == plain


def test_a_list_that_is_missing_or_wrong_is_told_before_anything_runs(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    with pytest.raises(StepError, match=r"takedown\.files\[0\]: there is no file"):
        run(tmp_path / "p", 1, lists(path))
    path.write_text(f"{ID} asked for\nexample.org asked for\n")
    with pytest.raises(StepError, match=r"takedown\.files\[0\].*line 2"):
        run(tmp_path / "p", 1, lists(path))
    assert not (tmp_path / "p").exists()


def test_an_entry_that_is_added_under_the_same_version_takes_its_document_down(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("http://web.invalid/3 the author asked for it\n")
    before = run(tmp_path / "p", 1, lists(path))
    with path.open("a") as stream:
        stream.write("http://web.invalid/4 the author asked for it\n")
    after = run(tmp_path / "p", 1, lists(path))
    assert {one.url for _, one in rows(before)} - {one.url for _, one in rows(after)} == {"http://web.invalid/4"}
    again = run(tmp_path / "p", 1, lists(path))
    assert again.identity == after.identity


def test_entries_that_match_no_document_are_remarked_and_stand_in_card_and_report(tmp_path: Path) -> None:
    what = [f"http://web.invalid/no-such-{number}" for number in range(4)]
    entries = tuple(TakedownEntry(one, "asked for") for one in (*what, "http://web.invalid/3"))
    clean = run(tmp_path / "p", 1, Policy(takedown=TakedownConfig(entries=entries)))
    (record,) = (tmp_path / "p").glob("_steps/documents.clean-*.json")
    (remark,) = json.loads(record.read_text())["remarks"]
    assert remark == f"4 of 5 takedown entries match no document: {', '.join(what[:3])}, …"
    card, report = clean.read("README.md").decode(), clean.read("report.html").decode()
    assert "4 of 5 entries match no document" in card and "4 of 5 entries match no document" in report
    assert f"| {what[3]} | asked for | none: check it |" in card
    assert "| http://web.invalid/3 | asked for | 1 |" in card
    assert report.count("none: check it") == 4


def test_a_list_of_which_every_entry_is_met_is_not_remarked(tmp_path: Path) -> None:
    run(tmp_path / "p", 1, Policy(takedown=TakedownConfig(entries=(TakedownEntry("http://web.invalid/3", "asked"),))))
    (record,) = (tmp_path / "p").glob("_steps/documents.clean-*.json")
    assert "remarks" not in json.loads(record.read_text())
