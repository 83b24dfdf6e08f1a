"""The consolidate step from end to end on two sources."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from marin.data.cells.config import QualityConfig, TopicConfig
from marin.data.cells.steps import grade, sample_corpus, train_quality, train_topics
from marin.data.consolidation.config import LicenceConfig, Policy, TakedownConfig
from marin.data.consolidation.report import policy_text
from marin.data.consolidation.steps import consolidate
from marin.data.dedup.steps import decontaminate
from marin.data.documents.artifacts import Documents
from marin.data.documents.io import iterate_documents
from marin.data.documents.schema import FATES, make_document, text_hash
from marin.data.documents.split import split_of
from marin.data.evalsets.config import EvalSetConfig
from marin.data.evalsets.steps import build_evalset
from marin.data.filtering.config import LanguageConfig, Rules, SignalConfig, UrlConfig, WordRules
from marin.data.filtering.personal import PersonalData
from marin.data.filtering.pii import KEY
from marin.data.filtering.steps import annotate
from marin.execution import External, StepError, materialise
from tests.data.consolidation.marking import Marked, mark
from tests.data.dedup.runs import duplicates_of
from tests.data.dedup.texts import prose
from tests.data.pages import Page, PageSet, write_pages

SIGNALS = SignalConfig(rules=Rules(repetition=None), url=UrlConfig(integrated_lists=False))
SHARE = 0.25
HOSTILE = "<script>alert('x')</script> "
SECRET = "rk_live_" + "a1B2" * 5
"""Put together here, so that no scanner takes it for a key that leaked."""


def sources() -> tuple[list[Page], list[Page]]:
    web = [Page(prose(n), url=f"http://web.invalid/{n}") for n in range(24)]
    web += [Page(prose(3), url="http://web.invalid/copy"), Page("Too short.", url="http://web.invalid/short")]
    books = [Page(HOSTILE + prose(200 + n), url=f"http://books.invalid/{n}") for n in range(24)]
    personal = f"jane@mail.org, 8.8.8.8, 2001:4860:4860::8888, +49 30 901820, {SECRET}"
    books += [Page(f"{prose(300)} Write to {personal}.", url="http://books.invalid/mail")]
    books += [Page("", url="http://books.invalid/empty")]
    return web, books


def run(
    prefix: Path,
    shards: int,
    policy: Policy = Policy(),
    signals: SignalConfig = SIGNALS,
    extra: Sequence[Page] = (),
    marked: Sequence[Marked] = (),
) -> Documents:
    web, books = sources()
    web += extra
    pages = [
        write_pages(PageSet(name, tuple(tuple(found[start::shards]) for start in range(shards))))
        for name, found in (("web", web), ("books", books))
    ]
    judged = [annotate(documents, signals) for documents in pages]
    duplicates = duplicates_of(pages, judged)
    evalset = build_evalset(
        pages, judged, duplicates, EvalSetConfig(validation_share=SHARE, choice_items=4, rolling_documents=2)
    )
    overlap = decontaminate(pages, [evalset])
    sample = sample_corpus(pages, judged, duplicates, evalset)
    topics = train_topics(sample, TopicConfig(clusters=2, dimensions=8))
    quality = train_quality(sample, topics, QualityConfig(positive=("books",), buckets=2, scope="topic"))
    cells = grade(pages, judged, quality, topics)
    cuts = [mark(pages, one) for one in marked]
    return materialise(
        consolidate(pages, judged, duplicates, overlap, evalset, cells, cuts, policy), prefix=str(prefix)
    )


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Documents:
    return run(tmp_path_factory.mktemp("clean"), 1)


def rows(clean: Documents) -> Iterator[tuple[Any, Any]]:
    for shard in clean.shards:
        for document in iterate_documents(clean, shards=[shard]):
            yield shard, document


def test_shards_hold_one_split_source_and_cell_and_there_are_four_training_cells(clean: Documents) -> None:
    for shard, document in rows(clean):
        assert (document.split, document.source) == (shard.split, shard.source)
        assert (document.topic, document.quality) == (shard.topic, shard.quality)
        assert f"/c{shard.topic:02d}q{shard.quality}/" in shard.name
        assert document.split == split_of(document.id, SHARE)
        assert document.language == "en"
        assert document.text_hash == text_hash(document.text)
    cells = {(shard.topic, shard.quality) for shard in clean.select(split="train")}
    assert cells == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert {shard.source for shard in clean.select(topic=0)} <= {"web", "books"}
    assert all(shard.rows for shard in clean.shards)
    assert clean.rows == sum(shard.rows for shard in clean.shards) == len(list(rows(clean)))


def test_every_document_ends_in_exactly_one_counter(clean: Documents) -> None:
    counts = clean.read_json("counts.json")
    assert counts["read"] == 52
    assert counts["read"] == counts["kept"] + sum(counts["dropped"].values())
    assert counts["kept"] == clean.rows
    assert counts["dropped"]["empty"] == 1
    assert counts["dropped"]["duplicate_exact"] == 1
    assert sum(cell["documents"] for cell in counts["cells"]) == clean.rows
    assert {name: sum(fates.values()) for name, fates in counts["by_source"].items()} == {"web": 26, "books": 26}


MAIL = "http://books.invalid/mail"


def test_personal_data_is_masked_flagged_or_kept_and_counted_by_kind(clean: Documents, tmp_path: Path) -> None:
    (found,) = [document for _, document in rows(clean) if document.url == MAIL]
    assert found.text.endswith(f"Write to email@example.com, 192.0.2.1, 2001:db8::1, +49 30 901820, {KEY}.")
    assert json.loads(found.metadata) == {"personal": {"phone": 1}}
    told = {"email": ("mask", 1), "ip": ("mask", 2), "phone": ("flag", 1), "key": ("mask", 1)}
    counts = clean.read_json("counts.json")["personal"]
    assert {kind: (row["treatment"], row["found"]) for kind, row in counts.items()} == told
    card, report = clean.read("README.md").decode(), clean.read("report.html").decode()
    for kind, (treatment, count) in told.items():
        assert f"| {kind} | {treatment} | {count} |" in card
        assert re.search(rf"<td>{kind}</td><td>{treatment}</td><td[^>]*>{count}</td>", report)
    policy = Policy(personal=PersonalData(email="keep", ip="flag", phone="mask", key="keep"))
    other = run(tmp_path, 1, policy)
    (kept,) = [document for _, document in rows(other) if document.url == MAIL]
    assert kept.text.endswith(f"Write to jane@mail.org, 8.8.8.8, 2001:4860:4860::8888, 555-0100, {SECRET}.")
    assert json.loads(kept.metadata) == {"personal": {"ip": 2}}
    assert "| email | keep | - |" in other.read("README.md").decode()
    # What people look at shows nobody's data, whatever the policy.
    assert "jane@mail.org" not in other.read("report.html").decode()


@pytest.mark.parametrize("shards", [3, 7])
def test_the_documents_are_the_same_for_every_sharding(clean: Documents, tmp_path: Path, shards: int) -> None:
    other = run(tmp_path, shards)
    assert Counter(document for _, document in rows(other)) == Counter(document for _, document in rows(clean))
    ours, theirs = clean.read_json("counts.json"), other.read_json("counts.json")
    assert ours == theirs


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_report_needs_nothing_beside_it_and_shows_reasons_and_samples(clean: Documents) -> None:
    text = clean.read("report.html").decode()
    page = _Page()
    page.feed(text)
    assert page.tags["script"] == 0
    assert page.links == []
    assert page.tags["rect"] > 2
    assert not re.search(r"url\(|@import", text)
    assert "&lt;script&gt;alert" in text
    for word in ("duplicate_exact", "kept", "web", "books", "empty"):
        assert word in text
    assert "jane@mail.org" not in text


def test_the_card_says_what_is_inside(clean: Documents) -> None:
    card = clean.read("README.md").decode()
    for shard in clean.shards:
        assert f"| {shard.split} | {shard.source} | {shard.topic} | {shard.quality} |" in card
    assert "25.0 %" in card
    assert "duplicate_exact" in card


def test_documents_of_another_licence_are_dropped_and_every_licence_is_counted(tmp_path: Path) -> None:
    licence = LicenceConfig(keep=("CC0-*",), keep_unknown=False, of_source={"books": "cc0"})
    clean = run(tmp_path, 1, Policy(licence=licence))
    assert {shard.source for shard in clean.shards} == {"books"}
    counts = clean.read_json("counts.json")
    assert counts["dropped"]["licence_unknown"] == 26
    assert counts["by_licence"]["unknown"] == {"dropped": 26}
    assert sum(counts["by_licence"]["CC0-1.0"].values()) == 26
    assert counts["by_licence"]["CC0-1.0"]["kept"] == clean.rows
    assert f"| CC0-1.0 | {clean.rows} |" in clean.read("README.md").decode()


def test_report_and_card_say_what_the_documents_were_made_from(clean: Documents, tmp_path: Path) -> None:
    report, card = clean.read("report.html").decode(), clean.read("README.md").decode()
    other = run(tmp_path, 3)
    for name in ("test/pages", "documents/signals", "documents/duplicates", "documents/overlap", "documents/cells"):
        assert name in report and name in card
    identities = set(re.findall(r"`([0-9a-f]{64})`", card))
    assert len(identities) == 8
    assert identities == set(re.findall(r"<code>([0-9a-f]{64})</code>", report))
    assert identities.isdisjoint(re.findall(r"`([0-9a-f]{64})`", other.read("README.md").decode()))


def test_a_dropped_sample_stands_with_the_value_that_dropped_it(clean: Documents) -> None:
    text = clean.read("report.html").decode()
    assert re.search(r"<em>(gopher|language|c4|fineweb)_\w+: \w+ [0-9.]+</em>", text)
    assert re.search(r"<em>duplicate_exact: [0-9a-f]{32}</em>", text)


def test_histograms_hold_every_document_once(clean: Documents) -> None:
    counts = clean.read_json("counts.json")
    for figure in ("lengths", "scores"):
        for fate in ("kept", "dropped"):
            total = counts["kept"] if fate == "kept" else sum(counts["dropped"].values())
            assert sum(counts[figure][fate].values()) == total
    titles = re.findall(r"<title>(\d+) (kept|dropped)</title>", clean.read("report.html").decode())
    assert sum(int(number) for number, _ in titles) == 2 * counts["read"]


def test_the_policy_is_told_without_places_of_this_machine() -> None:
    policy = Policy(takedown=TakedownConfig(files=(External("/somewhere/list.txt", "2026-11"),)))
    text = policy_text(policy)
    assert "somewhere" not in text
    told = yaml.safe_load(text)
    assert told["takedown"]["files"] == [{"version": "2026-11"}]
    assert told["drop_duplicates"] is True and told["licence"]["keep_unknown"] is True


def test_a_copy_that_passes_other_thresholds_takes_the_place_of_the_one_that_does_not(tmp_path: Path) -> None:
    short = [Page(prose(500 + n), url=f"http://web.invalid/short/{n}") for n in range(8)]
    long = [Page(f"{prose(500 + n)} {prose(600 + n, 3)}", url=f"http://web.invalid/long/{n}") for n in range(8)]
    rules = Rules(repetition=None, words=WordRules(minimum_words=max(len(page.text.split()) for page in short) + 1))
    clean = run(tmp_path, 3, Policy(rules=rules), extra=[*short, *long])
    kept = {document.url for _, document in rows(clean)}
    assert kept & {page.url for page in (*short, *long)} == {page.url for page in long}
    ids = {make_document(page.text, source="web", url=page.url).id for page in short}
    duplicates = [row for row in fates_of(clean) if row["reason"] == "gopher_few_words" and row["id"] in ids]
    assert len(duplicates) == 8
    # Some of the short ones stood in for the long ones, or the test would say nothing.
    stayed = run(tmp_path, 3, Policy(), extra=[*short, *long])
    assert ids & {document.id for _, document in rows(stayed)}


def fates_of(clean: Documents) -> list[dict[str, Any]]:
    return [row for name in clean.names(f"{FATES}*") for row in pq.read_table(clean.open(name)).to_pylist()]


def test_nothing_left_is_an_error_that_names_the_reasons(tmp_path: Path) -> None:
    with pytest.raises(StepError) as error:
        run(tmp_path, 1, Policy(language=LanguageConfig(keep=("fr",))))
    assert "language_other" in str(error.value)
    assert "52" in str(error.value)


def test_counts_are_plain_json(clean: Documents) -> None:
    assert json.loads(clean.read("counts.json"))["title"] == "Consolidated documents"
