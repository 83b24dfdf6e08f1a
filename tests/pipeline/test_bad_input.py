"""Wrong command lines, configs and inputs: one clear message, no traceback, the documented exit code."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from tests.pipeline.running import record, run

PAGES = 40
SENTENCES = (
    "The river runs past the old mill and turns south below the town. ",
    "Every spring the farmers clear the ditches before the water rises. ",
    "In the evening the children walk home along the bank and count the boats. ",
    "Nobody remembers who built the wall that keeps the garden dry. ",
    "A letter of that year tells how the bridge was carried away in one night. ",
)


def page(number: int) -> bytes:
    text = "".join(f"<p>{SENTENCES[(number + i) % 5]}It was the {number * 7 + i}th time.</p>" for i in range(12))
    return f"<html><head><title>Page {number}</title></head><body><article>{text}</article></body></html>".encode()


def write_warc(path: Path) -> list[int]:
    """A WARC of plain pages; returns where each member begins."""
    buffer = io.BytesIO()
    writer = WARCWriter(buffer, gzip=True)
    starts = []
    for number in range(PAGES):
        starts.append(buffer.tell())
        headers = StatusAndHeaders("200 OK", [("Content-Type", "text/html; charset=utf-8")], protocol="HTTP/1.1")
        body = io.BytesIO(page(number))
        writer.write_record(
            writer.create_warc_record(f"http://town.invalid/{number}", "response", payload=body, http_headers=headers)
        )
    path.write_bytes(buffer.getvalue())
    return starts


def crawl_config(folder: Path, warc: Path) -> Path:
    config = folder / "own.yaml"
    config.write_text(f"crawls:\n- source: town\n  embedded: null\n  warcs:\n  - path: {warc}\n    version: '1'\n")
    return config


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--trainig.steps", "5"), "--training.steps"),
        (("--scal", "smoke"), "--scale"),
        (("--training.steps", "-3"), "steps is -3"),
        (("--training.steps", "many"), "training.steps"),
        (("--training.parallel.ep", "3"), "ep must divide dp_shard"),
        (("--only", "nothing"), "matches no step"),
        (("--max-concurrent", "0"), "max_concurrent"),
        (("--config", "absent.yaml"), "absent.yaml"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_two(
    tmp_path: Path, flags: tuple[str, ...], message: str
) -> None:
    result = run(tmp_path / "p", *flags)
    assert result.returncode == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "p").exists()


def test_an_unwritable_prefix_is_one_line_and_exit_code_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    result = run(tmp_path / "file" / "p")
    assert result.returncode == 1
    assert "cannot be written" in result.stderr and "--prefix" in result.stderr
    assert "Traceback" not in result.stdout + result.stderr


@pytest.mark.ray
def test_a_missing_warc_fails_the_run_with_its_path_and_a_damaged_member_costs_one_counted_record(
    tmp_path: Path,
) -> None:
    warc = tmp_path / "town.warc.gz"
    config = crawl_config(tmp_path, warc)
    flags = ("--config", str(config), "--only", "documents/pages")
    missing = run(tmp_path / "p", *flags)
    assert missing.returncode == 1
    assert str(warc) in missing.stderr and "Traceback" not in missing.stdout + missing.stderr

    starts = write_warc(warc)
    data = bytearray(warc.read_bytes())
    middle = starts[PAGES // 2] + 60
    data[middle : middle + 40] = bytes(40)
    warc.write_bytes(bytes(data))
    result = run(tmp_path / "p", *flags)
    assert result.returncode == 0, result.stderr
    pages = record(tmp_path / "p", "documents/pages")
    flow, files = pages["flows"]
    assert (flow["unit"], files["unit"], files["kept"]) == ("records", "WARC files", 1)
    assert flow["kept"] == PAGES - 1
    assert flow["read"] == flow["kept"] + sum(flow["dropped"].values())
    assert sum(flow["dropped"].values()) == 1
