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
