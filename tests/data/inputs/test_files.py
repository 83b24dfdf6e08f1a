"""External inputs: one reader for all, which waits for servers and names the address."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from marin.data.consolidation.config import TakedownConfig
from marin.data.consolidation.takedown import load_takedowns
from marin.data.evalsets.config import EvalFileConfig
from marin.data.evalsets.steps import load_evalset
from marin.data.inputs.files import look_at, open_unpacked, read_input
from marin.execution import External, StepError, materialise
from tests.data.inputs.serving import at_first, serving

CONTENT = b"".join(b"line %d\n" % number for number in range(20_000))


@pytest.mark.parametrize("wrong", ["503", "429", "cut", "reset"])
def test_a_file_on_a_server_that_fails_at_first_is_read_whole(wrong: str) -> None:
    with serving({"/a.txt.gz": gzip.compress(CONTENT)}) as served:
        served.trouble = at_first(wrong, 2)
        served.head_trouble = at_first("503")
        assert look_at("x", f"{served.url}/a.txt.gz").size == len(gzip.compress(CONTENT))
        assert read_input("x", f"{served.url}/a.txt.gz") == CONTENT


def test_a_missing_file_is_named_with_its_field_at_once(tmp_path: Path) -> None:
    with serving({}) as served, pytest.raises(StepError, match=r"lists\[0\]: there is no file 'http://127.*/none"):
        read_input("lists[0]", f"{served.url}/none")
    with pytest.raises(StepError, match=r"lists\[0\]: there is no file '.*none'"):
        read_input("lists[0]", str(tmp_path / "none"))


def test_a_server_that_was_never_there_is_asked_for_a_few_seconds_only() -> None:
    with serving({}) as served:
        address = served.url
    with pytest.raises(StepError, match=r"x: .*'http://127"):
        read_input("x", f"{address}/a.txt")


def test_a_cut_file_that_must_be_whole_is_an_error_and_one_that_is_read_by_lines_gives_those_before(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(CONTENT)[:-10])
    with pytest.raises(StepError, match=r"x: '.*a\.gz' is truncated; get the file again"):
        read_input("x", str(path))
    with open_unpacked("x", str(path)) as stream:
        assert stream.readline() == b"line 0\n"


def test_evaluation_sets_and_takedown_lists_are_read_from_a_server_in_trouble(tmp_path: Path) -> None:
    items = b"".join(json.dumps({"question": f"What is {n}?"}).encode() + b"\n" for n in range(5))
    files = {"/set.jsonl.gz": gzip.compress(items), "/list.txt": b"http://x.invalid/gone on request\n"}
    with serving(files) as served:
        served.trouble, served.head_trouble = at_first("503"), at_first("503")
        config = EvalFileConfig("quiz", (External(f"{served.url}/set.jsonl.gz", "1"),), ("question",))
        assert materialise(load_evalset(config), prefix=str(tmp_path)).items == 5
        takedowns = load_takedowns(TakedownConfig(files=(External(f"{served.url}/list.txt", "1"),)))
    assert [entry.what for entry in takedowns.entries] == ["http://x.invalid/gone"]


def test_half_an_evaluation_set_is_no_set(tmp_path: Path) -> None:
    path = tmp_path / "set.jsonl.gz"
    lines = b"".join(json.dumps({"question": f"What is {n * n}?"}).encode() + b"\n" for n in range(5000))
    path.write_bytes(gzip.compress(lines)[:-100])
    config = EvalFileConfig("quiz", (External(str(path), "1"),), ("question",))
    with pytest.raises(StepError, match=r"'quiz', files\[0\]: .*set\.jsonl\.gz' is truncated after line \d+; get"):
        materialise(load_evalset(config), prefix=str(tmp_path / "p"))
