"""The web view over a prefix: what it shows, and what it never serves."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from marin.browse.app import human_bytes, make_app, media_type
from marin.browse.server import bind
from marin.execution import StepError, layout
from marin.execution.records import SCHEMA
from marin.storage import open_store

PAGES = "1a" * 32
CLEAN = "2b" * 32
NASTY = "<script>alert('x')</script>"


def write_step(
    prefix: Path,
    name: str,
    identity: str,
    files: dict[str, bytes],
    *,
    label: str | None = "web",
    upstream: tuple[tuple[str, str], ...] = (),
    generation: int = 1,
    flows: tuple[dict[str, Any], ...] = (),
    remarks: tuple[str, ...] = (),
) -> str:
    """A committed step as the runner leaves it; returns its slug."""
    store = open_store(str(prefix))
    attempt = f"{layout.step_folder(name, label, identity)}/a1-7f3c"
    listed = []
    for file, data in files.items():
        store.create(f"{attempt}/{file}", data)
        listed.append(
            {
                "name": file,
                "key": f"{attempt}/{file}",
                "size": len(data),
                "sha256": hashlib.sha256(data).hexdigest(),
            }
        )
    record = {
        "schema": SCHEMA,
        "name": name,
        "version": "1",
        "label": label,
        "identity": identity,
        "generation": generation,
        "path": attempt,
        "result_type": "Documents",
        "result": {"rows": 7},
        "files": listed,
        "flows": list(flows),
        "remarks": list(remarks),
        "recipe": {"config": {"title": NASTY}},
        "dependencies": [
            {"path": "pages", "name": other, "identity": key, "record": "", "output_digest": ""}
            for other, key in upstream
        ],
        "output_digest": "d" * 64,
        "code_digest": "c" * 64,
        "provenance": {"run": "7f3c", "finished": 1_796_032_805.25},
    }
    key = layout.record_key(name, identity, generation)
    store.create(key, json.dumps(record).encode())
    return f"{layout.flat(name)}-{layout.short(identity)}"


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    write_step(
        tmp_path,
        "documents/pages",
        PAGES,
        {"part-0.parquet": b"PAR1", "report.html": f"<h1>Pages</h1>{NASTY}".encode(), "sub/counts.json": b'{"a": 1}'},
        flows=({"unit": "records", "read": 10, "kept": 7, "dropped": {"not_html": 3}},),
        remarks=(f"1 of 1 files cut: {NASTY}",),
    )
    write_step(tmp_path, "documents/clean", CLEAN, {}, upstream=(("documents/pages", PAGES),), label=NASTY)
    return tmp_path


@pytest.fixture
def client(prefix: Path) -> TestClient:
    return TestClient(make_app(open_store(str(prefix))), base_url="http://127.0.0.1")


PAGES_URL = f"/steps/documents.pages-{PAGES[:10]}"


def test_every_finished_step_is_listed_with_its_size(client: TestClient) -> None:
    text = client.get("/").text
    assert "2 finished steps" in text and "2026-11-30 10:00:05" in text
    assert PAGES_URL in text
    assert "documents/clean" in text


def test_a_step_shows_its_counters_files_neighbours_and_report(client: TestClient) -> None:
    text = client.get(PAGES_URL).text
    assert PAGES in text
    assert "not_html 3" in text
    assert "<strong>1 of 1 files cut: " in text
    assert f"{PAGES_URL}/files/sub/counts.json" in text
    assert f"/steps/documents.clean-{CLEAN[:10]}" in text
    assert "<iframe sandbox" in text
    assert PAGES_URL in client.get(f"/steps/documents.clean-{CLEAN[:10]}").text


def test_text_from_the_store_never_becomes_markup(client: TestClient) -> None:
    for address in ("/", PAGES_URL, f"/steps/documents.clean-{CLEAN[:10]}"):
        answer = client.get(address)
        assert NASTY not in answer.text
        assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_a_report_is_served_without_the_right_to_run_scripts(client: TestClient) -> None:
    answer = client.get(f"{PAGES_URL}/files/report.html")
    assert answer.text.startswith("<h1>Pages</h1>")
    assert answer.headers["content-type"].startswith("text/html")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("sandbox;")
    assert "allow-scripts" not in policy


def test_data_files_are_downloads_and_small_text_is_shown(client: TestClient) -> None:
    data = client.get(f"{PAGES_URL}/files/part-0.parquet")
    assert data.content == b"PAR1"
    assert data.headers["content-disposition"].startswith("attachment")
    text = client.get(f"{PAGES_URL}/files/sub/counts.json")
    assert text.headers["content-type"].startswith("text/plain")
    assert "content-disposition" not in text.headers


@pytest.mark.parametrize(
    "name",
    [
        "../../../secret.txt",
        "..%2f..%2f..%2fsecret.txt",
        "%2e%2e/%2e%2e/%2e%2e/secret.txt",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "sub%2f..%2fpart-0.parquet",
        "part-0.parquet%00.html",
        "",
    ],
)
def test_only_files_that_the_record_lists_are_served(client: TestClient, prefix: Path, name: str) -> None:
    (prefix / "secret.txt").write_text("never")
    answer = client.get(f"{PAGES_URL}/files/{name}")
    assert answer.status_code == 404
    assert "never" not in answer.text


def test_failures_are_served_only_from_their_folder(client: TestClient, prefix: Path) -> None:
    (prefix / "secret.txt").write_text("never")
    (prefix / "_failed" / "documents.pages-x").mkdir(parents=True)
    (prefix / "_failed" / "documents.pages-x" / "7f3c-a1.json").write_text("Traceback <b>")
    assert "_failed/documents.pages-x/7f3c-a1.json" in client.get("/").text
    answer = client.get("/failures/_failed/documents.pages-x/7f3c-a1.json")
    assert answer.text == "Traceback <b>"
    assert answer.headers["content-type"].startswith("text/plain")
    assert client.get("/failures/secret.txt").status_code == 404
    assert client.get("/failures/_failed/../secret.txt").status_code == 404


def test_nothing_can_be_written(client: TestClient) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert client.request(method, PAGES_URL).status_code == 405


def test_a_foreign_host_name_is_refused(client: TestClient) -> None:
    assert client.get("/", headers={"host": "evil.example"}).status_code == 400


def test_a_file_that_lost_bytes_is_refused_with_the_step_named(client: TestClient, prefix: Path) -> None:
    next(prefix.glob("documents/pages/*/a1-7f3c/part-0.parquet")).write_bytes(b"PA")
    answer = client.get(f"{PAGES_URL}/files/part-0.parquet")
    assert answer.status_code == 410
    assert "2 bytes" in answer.text
    assert "documents/pages" in answer.text


def test_a_damaged_record_is_named_and_hides_nothing_else(client: TestClient, prefix: Path) -> None:
    (prefix / "_steps" / "documents.bad-0123456789.json").write_text("{")
    answer = client.get("/")
    assert answer.status_code == 200
    assert "documents.bad-0123456789.json" in answer.text
    assert "2 finished steps" in answer.text


def test_a_redo_replaces_the_first_generation(client: TestClient, prefix: Path) -> None:
    write_step(prefix, "documents/clean", CLEAN, {}, label="redone", generation=2)
    text = client.get("/").text
    assert "2 finished steps" in text
    assert "redone" in text
    assert "redo 2" in text


def test_open_claims_are_shown_and_released_ones_are_not(client: TestClient, prefix: Path) -> None:
    claims = prefix / "_claims"
    for slug, names in {
        "tokens.cell-aaaaaaaaaa": ["000001.json"],
        "tokens.cell-bbbbbbbbbb": ["000001.json", "000001.released", "000002.json"],
        "tokens.cell-cccccccccc": ["000001.json", "000001.released"],
        f"documents.pages-{PAGES[:10]}": ["000001.json"],
    }.items():
        (claims / slug).mkdir(parents=True)
        for name in names:
            (claims / slug / name).write_text("{}")
    section = client.get("/").text.partition("Claimed, not finished")[2]
    assert "tokens.cell-aaaaaaaaaa" in section
    assert "tokens.cell-bbbbbbbbbb" in section
    assert "tokens.cell-cccccccccc" not in section
    assert "documents.pages" not in section


def test_an_empty_prefix_is_a_page(tmp_path: Path) -> None:
    client = TestClient(make_app(open_store(str(tmp_path / "none"))), base_url="http://127.0.0.1")
    assert "No step has finished" in client.get("/").text


def test_a_taken_port_is_one_clear_error() -> None:
    first = bind(0)
    try:
        with pytest.raises(StepError) as caught:
            bind(first.getsockname()[1])
        assert "choose another" in str(caught.value)
    finally:
        first.close()


def test_sizes_and_media_types_read_as_people_expect() -> None:
    assert [human_bytes(count) for count in (0, 999, 1500, 20_000_000)] == ["0 B", "999 B", "1.5 kB", "20 MB"]
    assert media_type("a/b.HTML")[1]
    assert media_type("shard.jsonl") == ("text/plain; charset=utf-8", True)
    assert media_type("x.jsonl.gz") == ("application/octet-stream", False)
    assert media_type("LICENSE") == ("application/octet-stream", False)
