"""Data that exists becomes a step that graphs can use: in place or copied, with its evidence, and only if it fits."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from marin.execution import Action, Artifact, StepError, adopted, current_run, make_plan, materialise, step
from marin.execution.fitting import misfit
from marin.execution.planning.plan import planned_steps
from marin.execution.records import Record, load_record
from marin.execution.upkeep.adoption import Adoption, adopt, find_files, place_in
from marin.execution.upkeep.tombstones import bury, plan_tombstone
from marin.execution.upkeep.verify import damage_of
from marin.storage import Store, open_store
from tests.execution.graphs import Text


@dataclass(frozen=True)
class Part:
    """One file."""

    name: str
    rows: int


@dataclass(frozen=True, kw_only=True)
class Table(Artifact):
    """A class that describes its files itself: a part for each, with its number of lines."""

    parts: tuple[Part, ...]
    share: float
    kind: Literal["raw", "clean"] = "raw"

    @classmethod
    def describe(cls, files: Artifact) -> Table:
        """A part for each file."""
        parts = tuple(Part(name, files.read(name).count(b"\n")) for name in files.names("*.txt"))
        if not parts:
            raise StepError("no text files there")
        return Table(parts=parts, share=0.5)


@step("test/lines", version="1")
def lines(table: Table) -> Text:
    """All files of a table, one after the other."""
    text = b"".join(table.read(part.name) for part in table.parts).decode()
    current_run().write_bytes("text.txt", text.encode())
    return Text(text=text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two files."""
    mine = tmp_path / "mine"
    (mine / "deep").mkdir(parents=True)
    (mine / "a.txt").write_text("one\ntwo\n")
    (mine / "deep" / "b.txt").write_text("three\n")
    return mine


WANTED = Adoption("documents/mine", "2026-11", Table)
HANDLE = adopted("documents/mine", version="2026-11", kind=Table)


def adopt_all(store: Store, path: Path | str, adoption: Adoption = WANTED) -> tuple[Record, bool]:
    """Adopt a path."""
    return adopt(store, find_files(store, str(path)), adoption)


def test_a_folder_outside_is_copied_in_with_its_digests_and_a_graph_uses_it(folder: Path, local_store: Store) -> None:
    record, is_new = adopt_all(local_store, folder)
    assert is_new and record.provenance["adopted"] == {"path": str(folder), "by": "copy"}
    assert {file.name: file.sha256 for file in record.files} == {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in ("a.txt", "deep/b.txt")
    }
    assert damage_of(local_store, load_record(local_store, record.key), digests=True) == []
    for path in folder.rglob("*.txt"):
        path.unlink()
    assert materialise(lines(HANDLE), local_store.url).text == "one\ntwo\nthree\n"
    assert all(step.action is Action.cached for step in make_plan([lines(HANDLE)], local_store).steps)


def test_a_folder_in_the_prefix_stays_where_it_is(folder: Path, local_store: Store) -> None:
    for path in folder.rglob("*.txt"):
        local_store.create(f"raw/{path.relative_to(folder)}", path.read_bytes())
    before = {info.key for info in local_store.list()}
    record, _ = adopt_all(local_store, Path(local_store.url) / "raw")
    assert [file.key for file in record.files] == ["raw/a.txt", "raw/deep/b.txt"]
    assert record.provenance["adopted"]["by"] == "reference"
    assert {info.key for info in local_store.list() if not info.key.startswith("_")} == before
    assert materialise(lines(HANDLE), local_store.url).text == "one\ntwo\nthree\n"
    with pytest.raises(StepError, match="yours to remove"):
        plan_tombstone(local_store, record)


def test_a_single_file_and_a_folder_of_another_store_are_adopted_too(folder: Path, store: Store) -> None:
    record, _ = adopt_all(store, folder / "a.txt")
    assert [file.name for file in record.files] == ["a.txt"]
    other = open_store(f"{store.url}-other")
    other.create("raw/x.txt", b"x\n")
    far = Adoption("documents/far", "1", Table)
    record, _ = adopt_all(store, f"{other.url}/raw", far)
    assert [file.name for file in record.files] == ["x.txt"] and store.read(record.files[0].key) == b"x\n"


def test_the_identity_is_name_version_and_class_and_not_the_place_or_the_content(folder: Path, store: Store) -> None:
    record, _ = adopt_all(store, folder)
    assert planned_steps([HANDLE])[1][0].identity == record.identity
    (folder / "a.txt").write_text("other\n")
    other = open_store(f"{store.url}-other")
    assert adopt_all(other, folder)[0].identity == record.identity
    for changed in (
        Adoption("documents/mine", "2026-12", Table),
        Adoption("documents/other", "2026-11", Table),
        Adoption("documents/mine", "2026-11", Text, {"text": "x"}),
    ):
        assert adopt_all(store, folder, changed)[0].identity != record.identity


def test_a_plan_without_the_record_says_how_to_adopt_it(store: Store) -> None:
    for target in (HANDLE, lines(HANDLE)):
        with pytest.raises(
            StepError,
            match=r"marin adopt PATH --name documents/mine --version 2026-11 --type tests\.[\w.]+:Table",
        ):
            make_plan([target], store)


def test_adopting_the_same_again_changes_nothing_and_other_content_needs_another_version(
    folder: Path, store: Store
) -> None:
    record, _ = adopt_all(store, folder)
    before = store.list()
    assert adopt_all(store, folder) == (record, False)
    assert store.list() == before
    (folder / "a.txt").write_text("one\ntwO\n")
    with pytest.raises(StepError, match=r"stands for other content.*a version of its own, not '2026-11'"):
        adopt_all(store, folder)
    assert store.list() == before


def test_lost_or_buried_bytes_are_adopted_again_and_descendants_stay_cached(folder: Path, local_store: Store) -> None:
    record, _ = adopt_all(local_store, folder)
    materialise(lines(HANDLE), local_store.url)
    local_store.delete(record.files[0].key)
    second, is_new = adopt_all(local_store, folder)
    assert is_new and second.generation == 2 and second.output_digest == record.output_digest
    assert bury(local_store, plan_tombstone(local_store, second)) == []
    assert adopt_all(local_store, folder)[0].generation == 3
    assert all(step.action is Action.cached for step in make_plan([lines(HANDLE)], local_store).steps)


def test_bytes_that_were_buried_and_are_needed_have_to_be_adopted_again(folder: Path, local_store: Store) -> None:
    record, _ = adopt_all(local_store, folder)
    bury(local_store, plan_tombstone(local_store, record))
    with pytest.raises(StepError, match=r"tombstone.*marin adopt PATH"):
        make_plan([lines(HANDLE)], local_store)


def test_a_result_that_is_given_must_fit_the_class_in_every_field(folder: Path, store: Store) -> None:
    good: dict[str, Any] = {"parts": [{"name": "a.txt", "rows": 2}], "share": 1, "kind": "clean"}
    wrong: list[tuple[Any, str]] = [
        ([], "is a JSON object"),
        ({**good, "share": "half"}, "half"),
        ({**good, "parts": [{"name": "a.txt", "rows": "2"}]}, r"result\.parts\[0\]\.rows is '2', which is no int"),
        ({**good, "parts": [{"name": "a.txt"}]}, "rows"),
        ({**good, "more": 1}, "more"),
        ({**good, "kind": "dirty"}, r"result\.kind is 'dirty'"),
        ({**good, "parts": None}, r"result\.parts is None"),
    ]
    for result, message in wrong:
        with pytest.raises(StepError, match=message):
            adopt_all(store, folder, Adoption("documents/mine", "2026-11", Table, result))
        assert not [info.key for info in store.list("_steps")]
    record, _ = adopt_all(store, folder, Adoption("documents/mine", "2026-11", Table, good))
    assert record.result == {**good, "share": 1.0}


def test_a_class_that_cannot_describe_files_asks_for_a_result_before_anything_is_read(
    folder: Path, store: Store
) -> None:
    with pytest.raises(StepError, match="give its fields as --result"):
        adopt_all(store, folder, Adoption("documents/mine", "1", Text))
    assert not store.list()


def test_what_a_class_refuses_leaves_no_record(folder: Path, store: Store) -> None:
    (folder / "a.txt").unlink()
    (folder / "deep" / "b.txt").rename(folder / "b.bin")
    with pytest.raises(StepError, match="no text files"):
        adopt_all(store, folder)
    assert not store.list("_steps")


def test_places_that_hold_nothing_or_are_the_prefixs_own_are_refused(tmp_path: Path, local_store: Store) -> None:
    local_store.create("_steps/x.json", b"{}")
    with pytest.raises(StepError, match="no file at"):
        find_files(local_store, str(tmp_path / "nothing"))
    for own in ("", "_steps", "_runs/x"):
        with pytest.raises(StepError, match="the prefix's own"):
            find_files(local_store, str(Path(local_store.url) / own))
    assert place_in(local_store, f"{local_store.url}-other/raw") is None


def test_a_fit_is_judged_by_the_annotation_all_the_way_down() -> None:
    good: list[tuple[Any, Any]] = [
        (1, int),
        (1, float),
        (None, int | None),
        ({"a": [1, 2]}, dict[str, list[int]]),
        ((1, "x"), tuple[int, str]),
        ((), tuple[int, ...]),
        ({1: 2}, Any),
    ]
    bad: list[tuple[Any, Any, str]] = [
        (True, int, "result is True"),
        (1.5, int, "result is 1.5"),
        ("1", float, "result is '1'"),
        ({"a": [1, "2"]}, dict[str, list[int]], r"result.a[1] is '2'"),
        ((1, 2), tuple[int, str], "result[1] is 2"),
        ("x", int | None, "result is 'x'"),
    ]
    for value, annotation in good:
        assert misfit(value, annotation, "result") is None
    for value, annotation, message in bad:
        found = misfit(value, annotation, "result")
        assert found is not None and found.startswith(message)


def test_an_adopted_record_reads_like_any_other(folder: Path, store: Store) -> None:
    record, _ = adopt_all(store, folder)
    body = json.loads(store.read(record.key))
    assert body["recipe"]["config"] == {"role": "Table"} and body["dependencies"] == []
    assert {"run", "attempt", "epoch", "host", "started", "finished"} <= set(body["provenance"])
    assert not [info.key for info in store.list("_claims") if info.key.endswith(".released")]
    assert not store.list("_runs")
