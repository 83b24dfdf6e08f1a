"""datatrove's own steps inside a step of ours."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from marin.data.documents.artifacts import Documents
from marin.data.documents.io import iterate_documents
from marin.execution import StepError, materialise, step
from tests.data.dedup.texts import prose
from tests.data.pages import Page, PageSet, write_pages


def filters() -> Sequence[Any]:
    from datatrove.pipeline.filters import GopherRepetitionFilter, LambdaFilter
    from datatrove.pipeline.formatters import PIIFormatter

    return [
        GopherRepetitionFilter(top_n_grams=(), dup_n_grams=()),
        LambdaFilter(_is_long),
        PIIFormatter(email_replacement="x@example.com"),
    ]


def _is_long(document: Any) -> bool:
    return len(document.text) > 20


def breaking() -> Sequence[Any]:
    from datatrove.pipeline.filters import LambdaFilter

    return [LambdaFilter(_raise)]


def _raise(document: Any) -> bool:
    raise KeyError("no such thing")


@step("test/datatrove", version="1", fans_out=True)
def filtered(pages: Documents) -> Documents:
    from marin.data.sources.datatrove_steps import through_datatrove

    return through_datatrove(pages, filters)


@step("test/broken", version="1", fans_out=True)
def broken(pages: Documents) -> Documents:
    from marin.data.sources.datatrove_steps import through_datatrove

    return through_datatrove(pages, breaking)


GOOD = prose(1) + " Write to jane@mail.org for the map."
PAGES = (
    Page(GOOD, url="http://web.invalid/good"),
    Page("The same line.\n" * 20 + "An end.", url="http://web.invalid/lines"),
    Page("", url="http://web.invalid/empty"),
    Page("Too short.", url="http://web.invalid/short"),
    Page(prose(2), url="http://web.invalid/other"),
)


def flows(prefix: Path, name: str) -> list[dict[str, Any]]:
    (record,) = prefix.glob(f"_steps/{name}-*.json")
    found: list[dict[str, Any]] = json.loads(record.read_bytes())["flows"]
    return found


def test_filters_and_formatters_run_and_every_drop_has_its_reason(tmp_path: Path) -> None:
    pages = write_pages(PageSet("web", (PAGES[:3], PAGES[3:])))
    result = materialise(filtered(pages), prefix=str(tmp_path))
    documents = {document.url: document for document in iterate_documents(result)}
    assert set(documents) == {"http://web.invalid/good", "http://web.invalid/other"}
    before = {document.url: document for document in iterate_documents(materialise(pages, prefix=str(tmp_path)))}
    good = documents["http://web.invalid/good"]
    assert good.id == before["http://web.invalid/good"].id
    assert good.text == GOOD.replace("jane@mail.org", "x@example.com")
    assert good.text_hash != before["http://web.invalid/good"].text_hash
    assert documents["http://web.invalid/other"] == before["http://web.invalid/other"]
    (flow,) = flows(tmp_path, "test.datatrove")
    assert (flow["read"], flow["kept"]) == (5, 2)
    assert flow["dropped"] == {
        "GopherRepetitionFilter_dup_line_frac": 1,
        "GopherRepetitionFilter_empty": 1,
        "LambdaFilter": 1,
    }
    assert result.read_json("datatrove.json")["documents"] == {"made": 0, "read": 5, "written": 2}


def test_a_step_that_raises_fails_with_its_own_message(tmp_path: Path) -> None:
    with pytest.raises(StepError) as error:
        materialise(broken(write_pages(PageSet("web", (PAGES,)))), prefix=str(tmp_path))
    assert "no such thing" in str(error.value)


def quality() -> Sequence[Any]:
    from datatrove.pipeline.filters import C4QualityFilter, FineWebQualityFilter, GopherQualityFilter

    return [GopherQualityFilter(min_doc_words=5), C4QualityFilter(min_num_sentences=1), FineWebQualityFilter()]


def addresses() -> Sequence[Any]:
    from datatrove.pipeline.filters import RegexFilter, SamplerFilter, URLFilter

    return [
        URLFilter(use_integrated_lists=False, extra_domains=("blocked.com",)),
        RegexFilter("zzz"),
        SamplerFilter(1.0),
    ]


def formatters() -> Sequence[Any]:
    from datatrove.pipeline.formatters import FTFYFormatter, PIIFormatter, SymbolLinesFormatter

    return [FTFYFormatter(), SymbolLinesFormatter(), PIIFormatter()]


def extractors() -> Sequence[Any]:
    from datatrove.pipeline.extractors import Trafilatura

    return [Trafilatura(timeout=30)]


def halves() -> Sequence[Any]:
    return [Halves()]


class Halves:
    """A step that makes two documents of each, as splitters do."""

    def __new__(cls) -> Any:
        from datatrove.data import Document
        from datatrove.pipeline.base import PipelineStep

        class Split(PipelineStep):  # type: ignore[misc]  # datatrove has no types
            name = "split"

            def run(self, data: Any, rank: int = 0, world_size: int = 1) -> Any:
                for document in data:
                    middle = len(document.text) // 2
                    for number, text in enumerate((document.text[:middle], document.text[middle:])):
                        yield Document(text, f"{document.id}/{number}", metadata={**document.metadata, "part": number})

        return Split()


MADE = {
    "quality": quality,
    "addresses": addresses,
    "formatters": formatters,
    "extractors": extractors,
    "halves": halves,
}


@step("test/any", version="1", fans_out=True)
def anything(pages: Documents, which: str) -> Documents:
    from marin.data.sources.datatrove_steps import through_datatrove

    return through_datatrove(pages, MADE[which])


@pytest.mark.parametrize("which", MADE)
def test_filters_formatters_counters_and_splitters_run_and_every_document_is_accounted_for(
    tmp_path: Path, which: str
) -> None:
    wrap = "<html><body><article><p>{}</p></article></body></html>" if which == "extractors" else "{}"
    good = tuple(Page(wrap.format(prose(n)), url=f"http://www.blocked.com/{n}") for n in range(10, 14))
    other = tuple(Page(wrap.format(prose(n)), url=f"http://www.other.org/{n}") for n in range(20, 22))
    pages = write_pages(PageSet("web", (good + PAGES[1:2], other)))
    result = materialise(anything(pages, which), prefix=str(tmp_path))
    found = list(iterate_documents(result))
    (flow,) = flows(tmp_path, "test.any")
    assert flow["read"] == flow["kept"] + sum(flow["dropped"].values())
    assert flow["kept"] == len(found) == result.rows
    if which == "addresses":
        assert {document.url for document in found} >= {page.url for page in other}
        assert not any("blocked" in (document.url or "") for document in found)
        assert flow["dropped"]["URLFilter_domain"] == 4
    if which == "halves":
        assert (len(found), len({document.id for document in found})) == (14, 14)
        before = {page.url: page.text for page in (*good, *other)}
        parts = [[d for d in found if d.url == url] for url in before]
        assert all("".join(part.text for part in pair) == before[pair[0].url or ""] for pair in parts)
    if which == "extractors":
        assert {document.url: document.text for document in found}.items() >= {
            (p.url, prose(20 + n)) for n, p in enumerate(other)
        }
    if which == "formatters":
        assert len(found) == 7
