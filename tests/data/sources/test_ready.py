"""Ready sources from end to end, on servers of loopback that are laid out like the real ones and fail now and then.

What is run are the blocks of the page about sources, with other addresses in them.
"""

from __future__ import annotations

import bz2
import gzip
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from marin.data.documents.io import iterate_documents
from marin.execution import StepError, materialise
from tests.data.crawl.warcs import page_record, warcinfo
from tests.data.inputs.serving import Served, at_first, serving
from tests.data.sources.hub import COMMIT, HEADERS, hub_files
from tests.data.sources.test_dumps import END, HEAD, page
from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "stages" / "sources.md"
SHOWN = {
    name: next(block.body for block in blocks(PAGE) if block.language == "python" and f"import {name}\n" in block.body)
    for name in ("common_crawl", "wikipedia", "hugging_face", "text_folder", "files_of")
}


def made(name: str, prefix: Path, *changes: tuple[str, str]) -> Any:
    """What the block that shows a source makes."""
    code = SHOWN[name]
    for old, new in changes:
        assert old in code
        code = code.replace(old, new)
    names: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    return materialise(names["pages"], prefix=str(prefix))


def common_crawl_files() -> dict[str, bytes]:
    dump, files, names = "CC-MAIN-2026-30", {}, []
    for number in range(3):
        name = f"crawl-data/{dump}/segments/1783{number}/warc/CC-MAIN-20260712-{number:05d}.warc.gz"
        records = [warcinfo(), *(page_record(f"p{number}x{n}") for n in range(4))]
        files[f"/{name}"] = b"".join(gzip.compress(item, mtime=0) for item in records)
        names.append(name)
    files[f"/crawl-data/{dump}/warc.paths.gz"] = gzip.compress("\n".join([*names, ""]).encode())
    return files


TROUBLES = {
    "none": lambda served: None,
    "503": lambda served: (
        setattr(served, "trouble", at_first("503")),
        setattr(served, "head_trouble", at_first("503")),
    ),
    "429": lambda served: (
        setattr(served, "trouble", at_first("429")),
        setattr(served, "head_trouble", at_first("429")),
    ),
    "cut": lambda served: setattr(served, "trouble", at_first("cut")),
    "reset": lambda served: (
        setattr(served, "trouble", at_first("reset")),
        setattr(served, "head_trouble", at_first("reset")),
    ),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_dump_of_common_crawl_is_read_by_its_list(tmp_path: Path, trouble: str) -> None:
    with serving(common_crawl_files()) as served:
        TROUBLES[trouble](served)
        documents = made("common_crawl", tmp_path, ("https://data.commoncrawl.org", served.url))
    urls = [one.url for one in iterate_documents(documents)]
    assert urls == [f"http://p{number}x{n}.example/" for number in range(3) for n in range(4)]
    assert documents.read_json("extraction.json")["flow"]["dropped"] == {"warcinfo": 3}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_dump_of_wikipedia_is_read(tmp_path: Path, trouble: str) -> None:
    dump = bz2.compress((HEAD + "".join(page(n) for n in range(40)) + END).encode())
    with serving({"/dewiki/20261101/dewiki-20261101-pages-articles-multistream.xml.bz2": dump}) as served:
        TROUBLES[trouble](served)
        documents = made("wikipedia", tmp_path, ("https://dumps.wikimedia.org", served.url))
    assert [one.text for one in iterate_documents(documents)] == ["A mill on a river."] * 40


RUN_HUB = """
import sys
from marin.data.documents.io import iterate_documents
from marin.execution import materialise

names = {}
exec(sys.stdin.read(), names)
print(sorted(one.text for one in iterate_documents(materialise(names["pages"], prefix=sys.argv[1]))))
"""


def read_hub(served: Served, tmp_path: Path, code: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run in a process of its own, since the hub's client fixes its address when it is imported."""
    own = {**changes, "HF_ENDPOINT": served.url, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_TELEMETRY": "1"}
    command = [sys.executable, "-c", RUN_HUB, str(tmp_path / "prefix")]
    online = {"HF_HUB_OFFLINE": "0", "HF_DATASETS_OFFLINE": "0"}
    environment = {**os.environ, **online, **own, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, input=code, env=environment, capture_output=True, text=True, timeout=240)


def test_a_dataset_of_the_hub_is_read_in_parts_although_the_hub_fails_at_first(tmp_path: Path) -> None:
    shards = {f"data/train-{n:05d}.parquet": [{"text": f"Text {n} {m}."} for m in range(5)] for n in range(3)}
    with serving(hub_files("org/books", shards)) as served:
        served.headers, served.trouble = HEADERS, at_first("503")
        done = read_hub(served, tmp_path, SHOWN["hugging_face"])
        assert served.answers[503] >= 3
    assert done.stdout == f"{sorted(f'Text {n} {m}.' for n in range(3) for m in range(5))}\n", done.stderr[-2000:]
    assert COMMIT in SHOWN["hugging_face"]


def test_a_dataset_that_is_not_there_is_named(tmp_path: Path) -> None:
    with serving({}) as served:
        served.headers = {"X-Error-Code": "RepoNotFound"}
        done = read_hub(served, tmp_path, SHOWN["hugging_face"])
    assert done.returncode != 0
    assert f"dataset 'org/books' at revision '{COMMIT}' cannot be read" in done.stderr


def test_a_folder_of_texts_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.txt").write_text(f"What {name} says.")
    documents = made("text_folder", tmp_path / "p", ("/data/notes", str(folder)))
    assert [one.text for one in iterate_documents(documents)] == ["What one says.", "What two says."]


def test_files_of_a_format_are_read(tmp_path: Path) -> None:
    for number in range(3):
        pq.write_table(pa.table({"body": [f"Review {number}."]}), tmp_path / f"{number}.parquet")
    documents = made("files_of", tmp_path / "p", ("/data/reviews", str(tmp_path)))
    assert [one.text for one in iterate_documents(documents)] == ["Review 0.", "Review 1.", "Review 2."]


@pytest.mark.parametrize("trouble", ["503", "cut"])
def test_a_parquet_file_on_a_server_in_trouble_is_read(tmp_path: Path, trouble: str) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"body": [f"Review {number} of something." for number in range(5000)]}), path)
    with serving({"/rows.parquet": path.read_bytes()}) as served:
        TROUBLES[trouble](served)
        documents = made("files_of", tmp_path / "p", ("/data/reviews/*.parquet", f"{served.url}/rows.parquet"))
    assert documents.rows == 5000


def test_a_missing_file_is_named_at_once(tmp_path: Path) -> None:
    with serving({}) as served, pytest.raises(StepError, match=r"warcs\[0\]: there is no file 'http://127.*paths\.gz'"):
        made("common_crawl", tmp_path, ("https://data.commoncrawl.org", served.url))


def test_a_missing_member_of_a_list_is_named(tmp_path: Path) -> None:
    files = common_crawl_files()
    gone = next(name for name in files if name.endswith("00001.warc.gz"))
    del files[gone]
    with serving(files) as served, pytest.raises(StepError, match=r"there is no file 'http://.*00001\.warc\.gz'"):
        made("common_crawl", tmp_path, ("https://data.commoncrawl.org", served.url))


def test_a_client_that_is_told_to_stay_offline_is_not_waited_for(tmp_path: Path) -> None:
    with serving({}) as served:
        done = read_hub(served, tmp_path, SHOWN["hugging_face"], HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
        assert not served.asked
    assert done.returncode != 0
    assert "cannot be read" in done.stderr and "ffline" in done.stderr
