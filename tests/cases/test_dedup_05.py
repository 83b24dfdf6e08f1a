"""Duplicates of a reference set, with removals that can be traced."""

from __future__ import annotations

import json
from pathlib import Path

from marin.data.dedup.config import DedupConfig
from tests.data.dedup.runs import run_dedup
from tests.data.dedup.texts import changed, prose
from tests.data.pages import Page, PageSet

REFERENCE = [Page(prose(n), id=f"zz-ref{n}") for n in range(5)] + [Page(prose(4), id="zz-ref5")]
NEW = [
    Page(prose(0), id="new0"),
    Page(changed(prose(1), 3), id="new1"),
    Page(prose(20), id="new2"),
    Page(prose(21), id="new3"),
    Page(prose(21), id="new4"),
]


def test_the_reference_stays_whole_and_removals_name_the_document_that_stays(tmp_path: Path) -> None:
    sets = [PageSet("new", (tuple(NEW),)), PageSet("reference", (tuple(REFERENCE),))]
    outcome = run_dedup(tmp_path, sets, DedupConfig(protected=("reference",)))
    assert outcome.removed == {"new0": "zz-ref0", "new1": "zz-ref1", "new4": "new3"}
    assert {page.id for page in REFERENCE} <= outcome.kept
    rows = [json.loads(line) for line in outcome.attributes.read("removed.jsonl").splitlines()]
    assert [(row["id"], row["duplicate_of"], row["reason"]) for row in rows] == [
        ("new0", "zz-ref0", "duplicate_exact"),
        ("new1", "zz-ref1", "duplicate_fuzzy"),
        ("new4", "new3", "duplicate_exact"),
    ]
    assert outcome.attributes.read_json("report.json")["removed"] == {"duplicate_exact": 2, "duplicate_fuzzy": 1}
