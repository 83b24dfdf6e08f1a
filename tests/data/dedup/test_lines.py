"""Boilerplate lines, against a plain count."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.data.dedup.config import DedupConfig
from marin.data.dedup.line_candidates import cut_spans, folded, read_lines
from marin.data.dedup.spans_config import LineConfig
from marin.data.dedup.steps import repeated_lines
from marin.data.documents.artifacts import Attributes
from marin.execution import materialise
from tests.data.dedup.marked import Marks, mark
from tests.data.dedup.texts import changed, prose
from tests.data.pages import Page, PageSet, spread, write_pages

NAVIGATION = "Home of the valley archive and all its collections"


def find(
    prefix: Path,
    sets: Sequence[PageSet],
    config: LineConfig = LineConfig(),
    dropped: tuple[str, ...] = (),
    dedup: DedupConfig = DedupConfig(),
) -> tuple[dict[str, str], Attributes]:
    """The texts that are left by id, and the attributes. Documents that are dropped are duplicates."""
    pages = [write_pages(one) for one in sets]
    duplicates = mark(pages, Marks(dropped)) if dropped else None
    found = materialise(repeated_lines(pages, config, duplicates, dedup), prefix=str(prefix))
    texts = {page.id: page.text for one in sets for shard in one.shards for page in shard}
    return {row["id"]: without(texts[row["id"]], row) for row in rows_of(found)}, found


def rows_of(found: Attributes) -> list[dict[str, Any]]:
    return [row for shard in found.shards for row in pq.read_table(found.local(shard.name)).to_pylist()]


def without(text: str, row: dict[str, Any]) -> str:
    """A text without the spans of its row, which must be in order and of the size that the row says."""
    parts, at = [], 0
    for start, end in zip(row["starts"], row["ends"], strict=True):
        assert at <= start < end <= len(text)
        parts.append(text[at:start])
        at = end
    assert row["cut_characters"] == sum(row["ends"]) - sum(row["starts"])
    return "".join([*parts, text[at:]])


def site(host: str, count: int, *lines: str) -> list[Page]:
    """Pages of one host: a text of their own around the given lines."""
    return [
        Page("\n\n".join([*lines, prose(hash_of(host) + n, 3)]), url=f"http://{host}/{n}", id=f"{host}-{n:03d}")
        for n in range(count)
    ]


def hash_of(host: str) -> int:
    return sum(map(ord, host)) * 1000


def test_a_line_goes_from_the_site_where_it_recurs_and_stays_where_it_is_rare(tmp_path: Path) -> None:
    pages = [*site("a.org", 30, NAVIGATION), *site("b.org", 3, NAVIGATION), *site("c.org", 40)]
    left, found = find(tmp_path, [PageSet("web", spread(pages, 3))])
    assert {name for name, text in left.items() if NAVIGATION in text} == {f"b.org-{n:03d}" for n in range(3)}
    assert all(left[page.id] == page.text.removeprefix(f"{NAVIGATION}\n\n") for page in site("a.org", 30, NAVIGATION))
    report = found.read_json("report.json")
    assert report["boilerplate_lines"] == 1
    assert report["documents_cut"] == report["cut_lines"] == 30
    assert report["by_source"]["web"]["cut_characters"] == 30 * (len(NAVIGATION) + 2)
    assert report["top"] == [{"documents": 30, "example": "a.org-000", "text": NAVIGATION}]


def test_no_line_of_a_protected_source_is_cut_and_its_lines_count_for_the_others(tmp_path: Path) -> None:
    pages = site("a.org", 30, NAVIGATION)
    sets = [PageSet("gold", spread(pages[:25], 2)), PageSet("web", (tuple(pages[25:]),))]
    left, found = find(tmp_path, sets, dedup=DedupConfig(protected=("gold",)))
    assert {name for name, text in left.items() if NAVIGATION in text} == {page.id for page in pages[:25]}
    assert found.read_json("report.json")["by_source"]["gold"]["cut_lines"] == 0
    assert found.read_json("report.json")["by_source"]["web"]["cut_lines"] == 5


@pytest.mark.parametrize(
    ("having", "pages", "goes"), [(10, 20, False), (11, 20, True), (11, 240, False), (13, 240, True)]
)
def test_a_line_must_be_on_more_than_ten_pages_and_more_than_a_twentieth(
    tmp_path: Path, having: int, pages: int, goes: bool
) -> None:
    with_line = site("a.org", pages, NAVIGATION)[:having]
    left, _ = find(tmp_path, [PageSet("web", spread([*with_line, *site("a.org", pages)[having:]], 2))])
    assert sum(NAVIGATION in text for text in left.values()) == (0 if goes else having)


def test_what_many_sites_have_goes_from_all_of_them(tmp_path: Path) -> None:
    pages = [page for n in range(6) for page in site(f"s{n}.org", 2, NAVIGATION)]
    left, _ = find(tmp_path / "a", [PageSet("web", spread(pages, 2))], LineConfig(least_sites=5))
    assert not [name for name, text in left.items() if NAVIGATION in text]
    left, _ = find(tmp_path / "b", [PageSet("web", spread(pages, 2))], LineConfig(least_sites=6))
    assert all(NAVIGATION in text for text in left.values())
    left, _ = find(tmp_path / "c", [PageSet("web", spread(pages, 2))], LineConfig(least_sites=None))
    assert all(NAVIGATION in text for text in left.values())


def test_copies_of_a_page_are_one_document_and_near_copies_that_dedup_drops_are_none(tmp_path: Path) -> None:
    story = "\n\n".join(prose(7, 1) + f" Part {'abcdefgh'[n]} of the story." for n in range(8))
    copies = [Page(story, url=f"http://a.org/{n}", id=f"copy-{n:02d}") for n in range(20)]
    left, _ = find(tmp_path / "a", [PageSet("web", spread(copies, 2))])
    assert set(left.values()) == {story}
    near = [
        Page(f"{story}\n\n{changed(prose(8, 1), 3, seed=n)}", url=f"http://a.org/{n}", id=f"near-{n:02d}")
        for n in range(20)
    ]
    others = site("a.org", 5)
    left, _ = find(tmp_path / "b", [PageSet("web", spread([*near, *others], 2))])
    assert story not in left["near-00"]
    left, _ = find(tmp_path / "c", [PageSet("web", spread([*near, *others], 2))], dropped=tuple(p.id for p in near[1:]))
    assert story in left["near-00"]


def plain_count(pages: Sequence[Page], source: str, config: LineConfig) -> dict[str, set[str]]:
    """The lines to cut from each document, by counting sets of texts. All lines of these pages are candidates."""
    texts: dict[tuple[str, str], set[str]] = defaultdict(set)
    of_site: dict[str, set[str]] = defaultdict(set)
    sites: dict[str, set[str]] = defaultdict(set)
    for page in pages:
        host = page.url.split("/")[2] if page.url else source
        of_site[host].add(page.text)
        for line in page.text.split("\n\n"):
            texts[line, host].add(page.text)
            sites[line].add(host)
    found: dict[str, set[str]] = {}
    for page in pages:
        host = page.url.split("/")[2] if page.url else source
        found[page.id] = {
            line
            for line in page.text.split("\n\n")
            if (
                len(texts[line, host]) > config.least_documents
                and len(texts[line, host]) > config.share * len(of_site[host])
            )
            or (config.least_sites is not None and len(sites[line]) > config.least_sites)
        }
    return found


@pytest.mark.parametrize("seed", range(2))
def test_counts_are_those_of_a_plain_count_for_any_shards_and_parts_with_the_same_bytes(
    tmp_path: Path, seed: int
) -> None:
    draw = random.Random(seed)
    lines = [prose(1000 + n, 1) for n in range(40)]
    pages = []
    for n in range(120):
        host = draw.choice(["a.org", "a.org", "a.org", "b.org", "c.org", f"{n}.org", ""])
        chosen = [lines[min(draw.randint(0, 39), draw.randint(0, 39))] for _ in range(draw.randint(0, 6))]
        pages.append(Page("\n\n".join(chosen), url=f"http://{host}/{n}" if host else "", id=f"{n:03d}"))
    config = LineConfig(least_documents=4, share=0.12, least_sites=9)
    expected = plain_count(pages, "web", config)
    assert any(expected.values())
    assert any(set(page.text.split("\n\n")) - expected[page.id] for page in pages)
    by_id: list[dict[str, dict[str, Any]]] = []
    for run, (shards, partition_bytes) in enumerate([(1, 10**9), (3, 12_000), (5, 9_000)]):
        dealt = pages if run != 1 else pages[::-1]
        settings_of_run = LineConfig(least_documents=4, share=0.12, least_sites=9, partition_bytes=partition_bytes)
        left, found = find(tmp_path / str(run), [PageSet("web", spread(dealt, shards))], settings_of_run)
        for page in pages:
            kept = [line for line in page.text.split("\n\n") if line not in expected[page.id]]
            assert left[page.id] == "\n\n".join(kept)
        by_id.append({row["id"]: row for row in rows_of(found)})
    assert by_id[0] == by_id[1] == by_id[2]
    one, _ = find_bytes(tmp_path / "x", pages, config, 10**9)
    assert one == find_bytes(tmp_path / "y", pages, config, 8_000)[0]


def find_bytes(prefix: Path, pages: list[Page], config: LineConfig, part: int) -> tuple[dict[str, bytes], Attributes]:
    settings_of_run = LineConfig(config.least_documents, config.share, config.least_sites, partition_bytes=part)
    _, found = find(prefix, [PageSet("web", spread(pages, 4))], settings_of_run)
    names = [*(shard.name for shard in found.shards), "report.json"]
    return {name: Path(found.local(name)).read_bytes() for name in names}, found


STANDS = [
    "    return the_whole_list_of_names",
    "return the_whole_list_of_names_here",
    "import numpy as np and some others",
    "result = compute_all_the_totals now",
    "int sqlite3_open_v2(const char *name);",
    ">>> print all the lines of the file",
    "$ apt-get install a-package another-package",
    "CREATE TABLE names(first TEXT, last TEXT)",
    "command --with-option and --another-option",
    "12.50 13.75 18.00 21.25 and 1999.50",
    "These are the changes of version 3.4.0 (2022-12-28):",
]


@pytest.mark.parametrize("line", STANDS)
def test_code_figures_and_what_leads_to_other_lines_may_not_go(line: str) -> None:
    lines = read_lines(f"{line}\n\n{NAVIGATION}\n\n{line}", LineConfig())
    assert lines.may_go([(at, at + 1) for at in (0, 2, 4)]) == [False, True, False]


def test_a_block_of_code_or_a_table_keeps_its_plainest_line() -> None:
    code = "for name in names:\n    total += 1\n    print(name)\nthe total number of all names\nx = 1;"
    table = "Name of the column | Meaning of the column\nfirst | the first name\nlast | the last name"
    bar = "Home of the archive | News from the valley | About this site"
    lines = read_lines(f"{code}\n\n{table}\n\n{bar}", LineConfig())
    counted = [at for at, key in enumerate(lines.keys) if key is not None]
    assert {3, 6} < set(counted)
    may_go = lines.may_go([(at, at + 1) for at in counted])
    assert [at for at, may in zip(counted, may_go, strict=True) if may] == [len(lines.keys) - 1]
    assert lines.may_go([(first, after) for first, after, _ in lines.paragraphs]) == [False, False]


PRINTED = [
    "# apt install a-package\nReading package lists... Done\nThe following packages are new",
    "auto eth0\niface eth0 inet dhcp\niface eth0 inet6 auto",
    "Source: a-package\nStandards-Version: 4.5.1\nMaintainer: The People of the Valley",
    "Bus 001 Device 002: ID 04ca:3016 Lite-On Corp.\nBus 001 Device 001: ID 1d6b:0002 Linux Foundation",
]


@pytest.mark.parametrize("block", PRINTED)
def test_what_programs_print_and_read_may_not_go(block: str) -> None:
    lines = read_lines(f"{NAVIGATION}\n\n{block}", LineConfig())
    assert not any(lines.may_go([(at, at + 1) for at in range(2, len(lines.texts))]))
    assert not any(lines.may_go([(first, after) for first, after, _ in lines.paragraphs]))


def test_items_of_lists_and_lines_of_prose_may_go() -> None:
    text = "• News from the archive of the valley\n  ◦ Older news\n• Letters to the keeper of the archive"
    prose_lines = "The archive is open every day.\nVisitors are asked to be quiet in all its rooms."
    lines = read_lines(f"{text}\n\n{prose_lines}", LineConfig())
    assert lines.may_go([(0, 1), (2, 3), (4, 5), (5, 6)]) == [True] * 4


def test_code_that_is_on_every_page_stays(tmp_path: Path) -> None:
    pages = site("a.org", 30, "import the_archive as archive", f"{NAVIGATION}\nall = archive.open();\nall.close();")
    left, _ = find(tmp_path, [PageSet("web", spread(pages, 2))])
    assert left == {page.id: page.text for page in pages}


def test_short_lines_are_not_counted() -> None:
    lines = read_lines("Too short a line\n\nJust a little longer", LineConfig())
    assert [key is not None for key in lines.keys] == [False, False, True]


def test_case_width_and_white_space_do_not_tell_lines_apart_and_numbers_only_when_asked() -> None:
    def key(text: str, digits: bool = False) -> int | None:
        return read_lines(text, LineConfig(digits=digits)).keys[0]

    base = key("The keeper of the ﬁles of Straße 3")
    assert base is not None
    assert key("THE keeper of\tthe  files of STRASSE 3 ") == base
    assert key("The keeper of the files of Strassen 3") != base
    assert key("The keeper of the files of Strasse 12") != base
    assert key("The keeper of the files of Strasse 12", True) == key("The keeper of the files of Strasse 3", True)


def test_eight_characters_without_spaces_are_a_line() -> None:
    assert read_lines("版权所有保留一切权利", LineConfig()).keys[0] is not None
    assert read_lines("版权所有", LineConfig()).keys[0] is None


def test_a_paragraph_of_short_lines_goes_as_a_whole_and_its_lines_stay_elsewhere(tmp_path: Path) -> None:
    address = "The Valley Archive\n12 Mill Lane\nOld Town"
    pages = [*site("a.org", 20, address), *site("b.org", 20)]
    pages[3] = Page("12 Mill Lane\n\n" + pages[3].text, pages[3].url, pages[3].id)
    left, _ = find(tmp_path / "a", [PageSet("web", spread(pages, 2))])
    assert [name for name, text in left.items() if "Mill Lane" in text] == ["a.org-003"]
    assert left["a.org-003"].startswith("12 Mill Lane\n\nThe ")
    left, _ = find(tmp_path / "b", [PageSet("web", spread(pages, 2))], LineConfig(paragraphs=False))
    assert sum("Mill Lane" in text for text in left.values()) == 20


def test_one_text_keeps_the_first_of_its_places_when_asked(tmp_path: Path) -> None:
    pages = [Page(f"{p.text}\n\n{NAVIGATION}", p.url, p.id) for p in site("a.org", 30, NAVIGATION)]
    left, _ = find(tmp_path, [PageSet("web", spread(pages, 3))], LineConfig(keep_first=True))
    (holder,) = (name for name, text in left.items() if NAVIGATION in text)
    assert left[holder].startswith(NAVIGATION)
    assert left[holder].count(NAVIGATION) == 1
    turned, _ = find(tmp_path / "b", [PageSet("web", spread(pages[::-1], 2))], LineConfig(keep_first=True))
    assert turned == left


def test_documents_without_text_and_no_documents_at_all_are_no_trouble(tmp_path: Path) -> None:
    left, found = find(tmp_path / "a", [PageSet("web", ((Page("", id="empty"), Page(" \n\n ", id="blank")),))])
    assert left == {"empty": "", "blank": " \n\n "}
    assert found.kind == "lines"
    _, found = find(tmp_path / "b", [PageSet("web", ())])
    assert found.rows == 0


TEXTS = st.lists(st.sampled_from(["", " ", "one", "two", "x y"]), max_size=12)


@settings(max_examples=300, deadline=None)
@given(TEXTS, st.data())
def test_what_is_left_are_the_other_lines_without_a_gap_where_a_block_was(
    parts: list[str], data: st.DataObject
) -> None:
    text = "\n".join(parts)
    lines = read_lines(text, LineConfig())
    cut = [data.draw(st.booleans()) and not blank for blank in lines.blank]
    spans = cut_spans(lines, cut)
    row = {
        "starts": [start for start, _ in spans],
        "ends": [end for _, end in spans],
        "cut_characters": sum(end - start for start, end in spans),
    }
    left = without(text, row)
    given_lines = text.split("\n")
    assert [line for line in left.split("\n") if line.strip()] == [
        line for line, gone in zip(given_lines, cut, strict=True) if line.strip() and not gone
    ]
    if not any(cut):
        assert left == text

    def widest_gap(of: str) -> int:
        gaps = [0]
        for line in of.split("\n"):
            gaps = [*gaps, 0] if line.strip() else [*gaps[:-1], gaps[-1] + 1]
        return max(gaps)

    blocks = [block for block in text.split("\n\n") if block.strip()]
    if "\n\n\n" not in text and " " not in parts and not text.startswith("\n") and blocks and left:
        assert widest_gap(left) <= widest_gap(text)


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_any_text_can_be_read_and_folding_keeps_its_line_breaks(text: str) -> None:
    lines = read_lines(text, LineConfig(least_characters=1))
    assert len(lines.blank) == text.count("\n") + 1
    assert folded(text, digits=True).count("\n") == text.count("\n")


@pytest.mark.parametrize(
    "field",
    [{"least_documents": 0}, {"least_sites": 0}, {"share": 1.0}, {"least_characters": 0}, {"partition_bytes": 0}],
)
def test_wrong_settings_are_refused(field: dict[str, Any]) -> None:
    with pytest.raises(ValueError) as error:
        LineConfig(**field)
    assert f"LineConfig.{next(iter(field))}" in str(error.value)
