"""Document shards and attribute files."""

import contextlib
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from marin.data.documents.artifacts import Attributes, Documents
from marin.data.documents.attributes import attributes_of, read_attributes, write_attributes
from marin.data.documents.io import (
    DocumentWriter,
    documents_of,
    iterate_batches,
    iterate_documents,
    read_shard,
)
from marin.data.documents.schema import COLUMNS, make_document
from marin.execution import Artifact, StepError, current_run, materialise, step


def _documents(count, size=100):
    return [
        make_document(f"{n} " + "word " * (size // 5), source="web", url=f"http://x/{n}", metadata={"n": n})
        for n in range(count)
    ]


@step("test/written", version="1")
def write_documents(count: int, size: int, shard_bytes: int, row_group_bytes: int) -> Documents:
    with DocumentWriter(
        current_run().write, "pages", source="web", shard_bytes=shard_bytes, row_group_bytes=row_group_bytes
    ) as writer:
        for document in _documents(count, size):
            writer.write(document)
    return documents_of("web", writer.shards)


def _written(tmp_path, count=100, size=100, shard_bytes=1 << 30, row_group_bytes=1 << 20):
    return materialise(write_documents(count, size, shard_bytes, row_group_bytes), prefix=str(tmp_path))


def test_documents_come_back_as_they_were_written(tmp_path):
    written = _written(tmp_path)
    assert list(iterate_documents(written)) == _documents(100)
    assert (written.rows, written.text_bytes) == (100, sum(len(d.text.encode()) for d in _documents(100)))
    assert read_shard(written, written.shards[0]).schema.names == list(COLUMNS)


def test_shards_are_split_by_bytes_and_none_is_empty(tmp_path):
    written = _written(tmp_path, count=50, size=1000, shard_bytes=10_000, row_group_bytes=2000)
    assert len(written.shards) == pytest.approx(5, abs=2)
    assert all(shard.rows > 0 for shard in written.shards)
    assert sum(shard.rows for shard in written.shards) == written.rows == 50
    assert [document.url for document in iterate_documents(written)] == [f"http://x/{n}" for n in range(50)]


def test_a_shard_that_ends_at_its_limit_is_not_followed_by_an_empty_one(tmp_path):
    written = _written(tmp_path, count=4, size=1000, shard_bytes=1000, row_group_bytes=1000)
    assert [shard.rows for shard in written.shards] == [1, 1, 1, 1]


def test_row_groups_are_bounded_by_bytes(tmp_path):
    written = _written(tmp_path, count=40, size=1000, row_group_bytes=5000)
    file = pq.ParquetFile(written.local(written.shards[0].name))
    groups = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
    assert max(groups) <= 5
    assert file.metadata.row_group(0).column(1).compression == "ZSTD"


def test_no_documents_make_a_valid_artifact_without_shards(tmp_path):
    written = _written(tmp_path, count=0)
    assert (written.shards, written.rows, written.text_bytes) == ((), 0, 0)
    assert list(iterate_documents(written)) == []


def test_some_columns_can_be_read_alone(tmp_path):
    written = _written(tmp_path, count=3)
    assert [(d.id, d.text, d.url) for d in iterate_documents(written, columns=("id",))] == [
        (d.id, "", None) for d in _documents(3)
    ]
    batches = list(iterate_batches(written, written.shards[0], columns=("id", "quality")))
    assert batches[0].schema.names == ["id"]


def test_a_failure_finishes_no_file(tmp_path):
    finished = []

    @contextlib.contextmanager
    def open_file(name):
        with open(tmp_path / "file", "wb") as stream:
            yield stream
        finished.append(name)

    writer = DocumentWriter(open_file, "x", source="web", row_group_bytes=10)

    def write_and_fail():
        with writer:
            writer.write(_documents(1)[0])
            raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError):
        write_and_fail()
    assert (finished, writer.shards) == ([], ())


@dataclass(frozen=True, kw_only=True)
class Consolidated(Artifact):
    documents: Documents


@step("test/consolidated", version="1")
def label_documents(documents: Documents) -> Documents:
    with DocumentWriter(
        current_run().write, "clean", source="web", split="train", quality=2, consolidated=True, row_group_bytes=2000
    ) as writer:
        for shard in documents.shards:
            writer.write_table(read_shard(documents, shard).slice(0, 30))
    return documents_of(None, writer.shards)


def test_tables_are_written_with_the_labels_of_the_shard(tmp_path):
    clean = materialise(label_documents(write_documents(40, 500, 10**9, 10**6)), prefix=str(tmp_path))
    assert (clean.rows, clean.shards[0].split, clean.shards[0].quality) == (30, "train", 2)
    assert {(d.split, d.quality) for d in iterate_documents(clean)} == {("train", 2)}
    assert [d.text for d in iterate_documents(clean)] == [d.text for d in _documents(30, 500)]
    assert pq.ParquetFile(clean.local(clean.shards[0].name)).num_row_groups > 1
    assert clean.select(split="train", quality=2) == clean.shards
    assert clean.select(split="validation") == ()


@step("test/attributes", version="1")
def measure_documents(documents: Documents, missing: int) -> Attributes:
    shards = []
    for shard in documents.shards:
        table = read_shard(documents, shard, columns=("id", "text")).slice(missing)
        columns = {"id": table["id"], "length": pa.compute.utf8_length(table["text"]), "reason": pa.nulls(len(table))}
        shards.append(write_attributes(current_run().write, documents, shard, pa.table(columns)))
    return attributes_of("lengths", shards)


@step("test/joined", version="1")
def join(documents: Documents, attributes: Attributes) -> Consolidated:
    for shard in documents.shards:
        table = read_attributes(attributes, documents, shard)
        assert table["id"].to_pylist() == [d.id for d in iterate_documents(documents, shards=[shard])]
        assert table["length"].to_pylist() == [len(d.text) for d in iterate_documents(documents, shards=[shard])]
    return Consolidated(documents=documents)


def test_attributes_lie_row_for_row_beside_their_documents(tmp_path):
    written = write_documents(30, 500, 5000, 1000)
    materialise(join(written, measure_documents(written, 0)), prefix=str(tmp_path))


def test_attributes_with_missing_rows_are_refused(tmp_path):
    with pytest.raises(StepError, match="has 30"):
        materialise(measure_documents(write_documents(30, 50, 10**9, 10**9), 1), prefix=str(tmp_path))


def test_attributes_of_other_documents_are_not_taken_for_these(tmp_path):
    one, other = write_documents(3, 50, 10**9, 10**9), write_documents(3, 60, 10**9, 10**9)
    with pytest.raises(StepError, match="no attributes for shard"):
        materialise(join(other, measure_documents(one, 0)), prefix=str(tmp_path))


def test_batches_stay_within_row_groups_so_that_long_documents_do_not_pile_up(tmp_path):
    written = _written(tmp_path, count=40, size=1000, row_group_bytes=5000)
    batches = list(iterate_batches(written, written.shards[0], batch_rows=1000))
    assert max(batch.num_rows for batch in batches) <= 5
    assert [url for batch in batches for url in batch.column("url").to_pylist()] == [f"http://x/{n}" for n in range(40)]


def test_row_groups_count_bytes_in_any_script(tmp_path):
    sizes = {}
    for text in ("a" * 900, "\u00e9" * 450, "\u65e5" * 300):
        file = tmp_path / f"{ord(text[0])}.parquet"
        with DocumentWriter(lambda name, to=file: to.open("wb"), "x", source="web", row_group_bytes=3000) as writer:
            for n in range(40):
                writer.write(make_document(text, source="web", position=str(n)))
        sizes[text[0]] = [pq.ParquetFile(file).metadata.row_group(n).num_rows for n in range(3)]
    assert len({tuple(rows) for rows in sizes.values()}) == 1
