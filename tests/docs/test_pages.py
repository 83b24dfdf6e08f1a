"""The documentation agrees with the code: links, steps, flags, settings, and the code that it shows."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from marin.cli.experiment import experiment_parser
from marin.cli.main import build_parser
from marin.execution.planning.plan import planned_steps
from marin.recipes import scale_named
from tests.docs.pages import PAGES, ROOT, blocks, name_of, prose

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def load(path: Path) -> ModuleType:
    """A module from its file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # where dataclasses look up the names in annotations
    spec.loader.exec_module(module)
    return module


def anchors(page: Path) -> set[str]:
    """What a link into a page can name: its headings, in small letters, with - for blanks."""
    headings = re.findall(r"^#+ (.+)$", prose(page), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for target in _LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        place = (page.parent / path).resolve() if path else page
        assert place.exists(), f"{name_of(page)} links to {target}"
        assert place.is_relative_to(ROOT), f"{name_of(page)} links out of the project: {target}"
        if anchor:
            assert anchor in anchors(place), f"{name_of(page)} links to {target}; there are {sorted(anchors(place))}"


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        targets = (target.partition("#")[0] for target in _LINK.findall(prose(page)))
        waiting += [
            found
            for target in targets
            if target.endswith(".md") and (found := (page.parent / target).resolve()).exists()
        ]
    assert not {name_of(page) for page in PAGES} - {name_of(page) for page in reached if page in PAGES}


def test_no_page_names_a_place_of_one_machine() -> None:
    for page in PAGES:
        assert not re.search(r"/(home|root|work|Users)/|/tmp/w\b", page.read_text(encoding="utf-8")), name_of(page)


def test_every_step_of_the_graph_has_a_stage_page_that_names_it() -> None:
    experiment = load(ROOT / "experiments" / "exp_535b.py")
    steps, _ = planned_steps([experiment.build(scale_named("smoke"))])
    titles = [page.read_text(encoding="utf-8").splitlines()[0] for page in (ROOT / "docs" / "stages").glob("*.md")]
    for name in {step.name for step in steps}:
        assert any(f"`{name}`" in title for title in titles), f"no page in docs/stages has {name} in its title"


def test_every_flag_and_subcommand_is_in_the_reference() -> None:
    text = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")
    subcommands = next(a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction)).choices
    for name, parser in {"": experiment_parser("laptop"), **subcommands}.items():
        assert not name or f"### `marin {name}`" in text
        for flag in parser.flags():
            assert flag == "--help" or f"`{flag}" in text, f"{name} {flag} is not in docs/reference/cli.md"


def test_what_is_rendered_from_the_code_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    stale = load(ROOT / "docs" / "render.py").main(["--check"])
    assert stale == 0, f"run python docs/render.py and commit:\n{capsys.readouterr().out}"


@pytest.mark.ray
def test_the_step_of_the_how_to_page_works(tmp_path: Path, smoke_prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from marin.data.documents.artifacts import Documents
    from marin.execution import layout, materialise
    from marin.execution.planning.index import list_records
    from marin.execution.records import load_record, materialise_record
    from marin.storage import open_store

    code = next(
        block.body for block in blocks(ROOT / "docs" / "how-to" / "add-a-step.md") if block.language == "python"
    )
    (tmp_path / "long_documents.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    shown = importlib.import_module("long_documents")
    store = open_store(smoke_prefix)
    key = next(key for key in list_records(store).generations if key[0] == "documents.pages")
    pages = materialise_record(store, load_record(store, layout.record_key(*key)), Documents)
    assert isinstance(pages, Documents)

    kept = materialise(shown.keep_long(pages, shown.LengthConfig(2_000)), prefix=str(tmp_path / "prefix"))

    assert 0 < kept.rows < pages.rows
    assert kept.text_bytes >= 2_000 * kept.rows
