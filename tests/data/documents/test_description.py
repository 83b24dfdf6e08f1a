"""Parquet files that no step of ours wrote are described as the documents that they are, or refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from marin.data.documents.artifacts import Documents
from marin.data.documents.io import CONSOLIDATED_SCHEMA, SCHEMA, iterate_documents
from marin.execution import StepError, adopted, current_run, materialise, step
from marin.execution.records import Record
from marin.execution.upkeep.adoption import Adoption, adopt, find_files
from marin.storage import Store, open_store

ROWS = [
    {
        "id": f"{number:032x}",
        "text": text,
        "text_hash": f"{number:032x}",
        "source": "mine",
        "url": None,
        "language": "en" if number % 2 else None,
        "metadata": "{}",
    }
    for number, text in enumerate(["one", "naïve café", "", "日本"])
]
WANTED = Adoption("documents/mine", "1", Documents)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "prefix")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine").mkdir()
    return tmp_path / "mine"


def adopted_from(store: Store, folder: Path) -> Record:
    """Adopt a folder as documents."""
    return adopt(store, find_files(store, str(folder)), WANTED)[0]


def write(path: Path, rows: list[dict[str, object]], schema: pa.Schema = SCHEMA) -> None:
    """A parquet file in row groups of two."""
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path, row_group_size=2)


@step("test/texts", version="1")
def texts(documents: Documents) -> Documents:
    """Pass the documents on, and note their texts."""
    found = [document.text for document in iterate_documents(documents)]
    current_run().write_json("texts.json", found)
    return documents_as_they_are(documents)


def documents_as_they_are(documents: Documents) -> Documents:
    """The same fields."""
    return Documents(
        source=documents.source, shards=documents.shards, rows=documents.rows, text_bytes=documents.text_bytes
    )


def test_shards_rows_and_text_bytes_are_counted_and_a_step_reads_them(folder: Path, store: Store) -> None:
    write(folder / "b.parquet", ROWS[:1])
    write(folder / "a.parquet", ROWS[1:])
    write(folder / "empty.parquet", [])
    (folder / "README").write_text("not documents")
    result = adopted_from(store, folder).result
    assert [(shard["name"], shard["rows"], shard["source"]) for shard in result["shards"]] == [
        ("a.parquet", 3, "mine"),
        ("b.parquet", 1, "mine"),
    ]
    assert result["rows"] == 4 and result["source"] == "mine"
    assert result["text_bytes"] == sum(len(str(row["text"]).encode()) for row in ROWS)
    made = materialise(texts(adopted("documents/mine", version="1", kind=Documents)), store.url)
    assert made.read_json("texts.json") == ["naïve café", "", "日本", "one"]


def test_shards_of_consolidated_documents_keep_their_split_and_quality(folder: Path, store: Store) -> None:
    added = [field for field in CONSOLIDATED_SCHEMA if field.name not in SCHEMA.names]
    blank = {field.name: -1 if pa.types.is_integer(field.type) else "" for field in added}
    rows = [{**row, **blank, "split": "train", "quality": 3} for row in ROWS]
    write(folder / "a.parquet", rows, CONSOLIDATED_SCHEMA)
    write(folder / "b.parquet", [{**row, "source": "other"} for row in ROWS])
    result = adopted_from(store, folder).result
    assert [(shard["split"], shard["quality"], shard["source"]) for shard in result["shards"]] == [
        ("train", 3, "mine"),
        ("", -1, "other"),
    ]
    assert result["source"] is None


def test_what_is_not_documents_is_refused_naming_file_and_column(folder: Path, store: Store) -> None:
    table = pa.Table.from_pylist(ROWS, schema=SCHEMA)
    at = SCHEMA.get_field_index("text")
    nullable = pa.schema([pa.field(field.name, field.type) for field in SCHEMA])
    wrong = {
        "a.parquet has no column text_hash": table.drop_columns(["text_hash"]),
        "column text is of type binary": table.set_column(at, "text", table.column("text").cast(pa.binary())),
        "column text has 1 nulls": pa.Table.from_pylist([{**ROWS[0], "text": None}], schema=nullable),
        "1 ids of 5 documents stand twice": pa.concat_tables([table, table.slice(2, 1)]),
        "column source has 2 values": pa.Table.from_pylist([ROWS[0], {**ROWS[1], "source": "other"}], schema=SCHEMA),
    }
    for message, content in wrong.items():
        pq.write_table(content, folder / "a.parquet")
        with pytest.raises(StepError, match=message):
            adopted_from(store, folder)
    (folder / "a.parquet").write_bytes(b"PAR1 and nothing")
    with pytest.raises(StepError, match=r"a\.parquet is no whole parquet file"):
        adopted_from(store, folder)
    (folder / "a.parquet").rename(folder / "a.txt")
    with pytest.raises(StepError, match="no parquet file"):
        adopted_from(store, folder)
    assert not store.list("_steps")


@pytest.mark.parametrize("above", ["", "attempt/"])
def test_fates_beside_consolidated_documents_are_no_documents(folder: Path, store: Store, above: str) -> None:
    fates = folder / above / "fates" / "0123456789"
    fates.mkdir(parents=True)
    pq.write_table(pa.table({"id": ["a"], "reason": ["empty"]}), fates / "pages.parquet")
    write(folder / above / "a.parquet", ROWS)
    result = adopted_from(store, folder).result
    assert [shard["name"] for shard in result["shards"]] == [f"{above}a.parquet"]
