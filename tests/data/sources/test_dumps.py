"""Dumps of MediaWiki that are cut, damaged or none."""

from __future__ import annotations

import bz2
import io
from pathlib import Path

import pytest

from marin.data.documents.io import iterate_documents
from marin.data.sources.dumps import Article, articles
from marin.data.sources.ready import files_of
from marin.execution import StepError
from tests.data.sources.reading import read

HEAD = (
    '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11">\n  <siteinfo>\n'
    "    <base>https://en.wikipedia.org/wiki/Main_Page</base>\n  </siteinfo>\n"
)
END = "</mediawiki>\n"


def page(number: int, text: str = "A '''mill''' on a [[river]].", namespace: int = 0) -> str:
    return (
        f"  <page>\n    <title>Mill {number}</title>\n    <ns>{namespace}</ns>\n    <id>{number}</id>\n    <revision>\n"
        f"      <id>9{number}</id>\n      <timestamp>2026-01-02T03:04:05Z</timestamp>\n"
        f'      <text bytes="9" xml:space="preserve">{text}</text>\n    </revision>\n  </page>\n'
    )


def outcomes(dump: str, longest: int = 1 << 20) -> list[str]:
    found = articles(io.BufferedReader(io.BytesIO(dump.encode())), "dump.xml", longest)
    return [one.title if isinstance(one, Article) else f"{one} at {place}" for place, one in found]


def test_every_page_is_an_article_or_has_a_reason() -> None:
    dump = (
        HEAD
        + page(1)
        + page(2, namespace=1)
        + page(3, "#REDIRECT [[Mill 1]]").replace("<revision>", "<redirect/><revision>")
        + page(4)
        + END
    )
    assert outcomes(dump) == ["Mill 1", "other_namespace at dump.xml:2", "redirect at dump.xml:3", "Mill 4"]


@pytest.mark.parametrize(
    "broken", [page(2).replace("</title>", "</titel>"), page(2, "an &undefined; sign"), page(2, "\x0b")]
)
def test_a_page_that_is_no_xml_costs_itself_only(broken: str) -> None:
    assert outcomes(HEAD + page(1) + broken + page(3) + END) == ["Mill 1", "broken_page at dump.xml:page 1", "Mill 3"]


@pytest.mark.parametrize("cut", [1, 5, 30, 120, 250])
def test_a_cut_is_counted_wherever_it_is(cut: int) -> None:
    dump = HEAD + page(1) + page(2)
    found = outcomes((dump + END)[: -len(END)][:-cut] if cut > 1 else dump)
    assert found[0] == "Mill 1"
    assert found[-1].startswith("truncated")
    assert len(found) == (3 if cut == 1 else 2)


def test_a_page_longer_than_allowed_is_passed_over() -> None:
    dump = HEAD + page(1) + page(2, "word " * 1_000_000) + page(3) + page(4, "word " * 3000) + page(5) + END
    assert outcomes(dump, 10_000) == [
        "Mill 1",
        "too_long at dump.xml:page 1",
        "Mill 3",
        "too_long at dump.xml:page 3",
        "Mill 5",
    ]


def test_pages_are_found_wherever_the_reads_end() -> None:
    dump = (HEAD + "".join(page(number, "x" * (number % 97)) for number in range(3000)) + END).encode()

    class Trickle(io.BufferedReader):
        def read1(self, size: int = -1) -> bytes:
            return super().read1(701)

    found = list(articles(Trickle(io.BytesIO(dump)), "dump.xml", 1 << 20))
    assert [one.title for _, one in found if isinstance(one, Article)] == [f"Mill {number}" for number in range(3000)]


def test_a_file_that_is_no_dump_is_named_and_an_empty_one_has_no_pages() -> None:
    with pytest.raises(StepError, match=r"dump\.xml is no XML dump of MediaWiki"):
        outcomes('{"text": "something else"}\n' * 1000)
    assert outcomes("") == []


def test_a_packed_dump_that_is_cut_gives_its_whole_pages_and_one_count(tmp_path: Path) -> None:
    path = tmp_path / "enwiki-pages-articles.xml.bz2"
    first = bz2.compress((HEAD + page(1)).encode())
    path.write_bytes(first + bz2.compress((page(2) + END).encode())[:-30])
    documents, flow = read(tmp_path / "p", files_of("wiki", [str(path)], format="wikipedia", version="1"))
    assert [one.url for one in iterate_documents(documents)] == ["https://en.wikipedia.org/wiki/Mill_1"]
    assert flow["dropped"] == {"truncated": 1}
