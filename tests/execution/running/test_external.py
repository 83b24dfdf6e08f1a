"""An external input stands for one content: a later use that sees another is refused, wherever it lies."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import http.server
import io
import json
import os
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import fsspec.config
import gcsfs.core
import pytest

from marin.execution import Artifact, External, StepError, current_run, materialise, runtime, step
from marin.execution.running.external import BLOCK, BLOCKS, Sighting, sample, see, see_file, without_password
from marin.storage import StoreUnavailable
from tests.storage.emulators import SERVERS, Emulator, forget_clients


@dataclass(frozen=True)
class Reading:
    """Which inputs to read. `seed` makes another recipe; `during` is a file that is touched while they are read."""

    files: tuple[External, ...]
    seed: int = 0
    during: str = runtime("")
    fail: bool = runtime(False)


@dataclass(frozen=True, kw_only=True)
class Text(Artifact):
    """What was read."""

    text: str


@step("external/read", version="1")
def read(config: Reading) -> Text:
    """All inputs, one after the other."""
    text = ""
    for external in config.files:
        for file in fsspec.open_files(external.path, "rb"):
            with file as stream:
                text += hashlib.sha256(stream.read()).hexdigest()[:6] + " "
    current_run().write_bytes("text.txt", text.encode())
    if config.during:
        with open(config.during, "ab") as stream:
            stream.write(b"more")
    if config.fail:
        raise ValueError("unexpected end of file")
    return Text(text=text)


def use(prefix: Path, *files: External, **changes: Any) -> str:
    """Run the step and return what it read."""
    made: Text = materialise(read(dataclasses.replace(Reading(files), **changes)), prefix=str(prefix))
    return made.text


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    return tmp_path / "prefix"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.txt").write_bytes(name.encode() * 10)
    return folder


def refusal(prefix: Path, *files: External, **changes: Any) -> str:
    """Why the step refuses its inputs."""
    with pytest.raises(StepError) as caught:
        use(prefix, *files, **changes)
    return str(caught.value)


def test_another_recipe_that_reads_the_same_content_runs(prefix: Path, data: Path) -> None:
    external = External(str(data / "a.txt"), "v1")
    assert use(prefix, external) == use(prefix, external, seed=1)
    notes = list(prefix.glob("_externals/v1-a-txt-*/*.json"))
    assert len(notes) == 1
    os.utime(data / "a.txt", (1, 1))
    assert use(prefix, external, seed=2)
    assert list(prefix.glob("_externals/*/*.json")) == notes


@pytest.mark.parametrize("content", [b"a" * 11, b"a" * 9 + b"A"])
def test_changed_content_is_refused_with_both_observations_and_a_way_out(
    content: bytes, prefix: Path, data: Path
) -> None:
    external = External(str(data / "a.txt"), "v1")
    use(prefix, external)
    (data / "a.txt").write_bytes(content)
    says = refusal(prefix, external, seed=1)
    assert f"config.files[0] = External({str(data / 'a.txt')!r}, version='v1')" in says
    assert "a.txt had 10 bytes, sample " in says
    assert f"and has {len(content)} bytes, sample " in says
    assert "step external/read-" in says
    assert "give it a version that no other content has" in says
    assert use(prefix, External(str(data / "a.txt"), "v2"), seed=1)


def test_a_finished_step_is_not_looked_at_again(prefix: Path, data: Path) -> None:
    external = External(str(data / "a.txt"), "v1")
    text = use(prefix, external)
    (data / "a.txt").unlink()
    assert use(prefix, external) == text


def test_a_missing_input_is_one_line_that_names_field_and_path(prefix: Path, data: Path) -> None:
    says = refusal(prefix, External(str(data / "a.txt"), "v1"), External(str(data / "c.txt"), "v1"))
    assert f"config.files[1]: there is no file {str(data / 'c.txt')!r}; check the path" in says
    assert "nothing matches" in refusal(prefix, External(str(data / "*.nothing"), "v1"))
    assert not list(prefix.glob("_externals/*"))


def test_a_mirror_must_have_the_same_content_and_nothing_else(prefix: Path, data: Path, tmp_path: Path) -> None:
    use(prefix, External(str(data / "a.txt"), "v1"))
    mirror = tmp_path / "mirror"
    mirror.mkdir()
    (mirror / "a.txt").write_bytes(b"a" * 10)
    assert use(prefix, External(str(mirror / "a.txt"), "v1"), seed=1)
    assert len(list(prefix.glob("_externals/*/*.json"))) == 2
    (mirror / "a.txt").write_bytes(b"b" * 10)
    assert "a.txt had 10 bytes" in refusal(prefix, External(str(mirror / "a.txt"), "v1"), seed=2)
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.txt").write_bytes(b"another file of this name")
    says = refusal(prefix, External(str(other / "a.txt"), "v1"), seed=2)
    assert f"at {other / 'a.txt'} now: a.txt had 10 bytes" in says
    assert use(prefix, External(str(other / "a.txt"), "other-1"), seed=2)


def test_a_file_of_another_name_may_have_the_same_version(prefix: Path, data: Path) -> None:
    files = [External(str(data / f"{name}.txt"), "v1") for name in "ab"]
    assert use(prefix, *files)


def test_files_that_join_or_leave_a_pattern_or_a_folder_are_a_change(prefix: Path, data: Path) -> None:
    pattern, folder = External(str(data / "*.txt"), "v1"), External(str(data), "v1")
    use(prefix, pattern)
    (data / "b.txt").rename(data / "c.txt")
    says = refusal(prefix, pattern, seed=1)
    assert "b.txt is gone; c.txt joined" in says
    (data / "c.txt").rename(data / "b.txt")
    assert use(prefix, pattern, seed=1)
    before = see("config.files[0]", folder)
    (data / "below").mkdir()
    (data / "below" / "d.txt").write_bytes(b"d")
    assert [file.name for file in see("config.files[0]", folder).files] == ["a.txt", "b.txt", "below/d.txt"]
    assert [file.name for file in before.files] == ["a.txt", "b.txt"]
    assert before.is_folder and not see("config.files[0]", pattern).is_folder


def test_a_path_that_is_there_is_no_pattern(data: Path) -> None:
    (data / "a[1].txt").write_bytes(b"x")
    sight = see("config", External(str(data / "a[1].txt"), "v1"))
    assert [file.name for file in sight.files] == ["a[1].txt"]
    assert sight.urls == (str(data / "a[1].txt"),)


def test_an_input_that_changes_while_it_is_read_fails_the_step_and_is_not_remembered(prefix: Path, data: Path) -> None:
    external = External(str(data / "a.txt"), "v1")
    says = refusal(prefix, external, during=str(data / "a.txt"))
    assert "changed while the step read it: a.txt had 10 bytes" in says
    assert not list(prefix.glob("_externals/*"))
    says = refusal(prefix, external, during=str(data / "a.txt"), fail=True)
    assert "changed while the step read it" in says
    assert "unexpected end of file" in refusal(prefix, external, fail=True)


def test_a_step_that_failed_leaves_the_version_free_for_better_content(prefix: Path, data: Path) -> None:
    external = External(str(data / "a.txt"), "v1")
    refusal(prefix, external, fail=True)
    (data / "a.txt").write_bytes(b"downloaded once more")
    assert use(prefix, external)


def test_a_sample_covers_small_files_whole_and_blocks_of_large_ones(tmp_path: Path) -> None:
    small, large = os.urandom(BLOCK * BLOCKS), bytes(BLOCK * BLOCKS * 4)
    file = tmp_path / "f"

    def sampled(content: bytes) -> dict[str, str]:
        file.write_bytes(content)
        return see_file("f", str(file)).content

    seen = sampled(small)
    for place in (0, len(small) // 3, len(small) - 1):
        changed = small[:place] + bytes([small[place] ^ 1]) + small[place + 1 :]
        assert sampled(changed) != seen
    seen = sampled(large)
    for place in (0, BLOCK - 1, len(large) - 1, len(large) - BLOCK, (len(large) - BLOCK) // (BLOCKS - 1)):
        assert sampled(large[:place] + b"x" + large[place + 1 :]) != seen
    unseen = BLOCK + 1
    assert sampled(large[:unseen] + b"x" + large[unseen + 1 :]) == seen
    assert sampled(large + b"x") != seen
    assert seen == {"sample": sample(io.BytesIO(large), len(large))}


def test_passwords_in_addresses_are_kept_nowhere() -> None:
    assert without_password("ftp://me:pass@host/x") == "ftp://host/x"
    assert without_password("https://host/a@b") == "https://host/a@b"
    assert without_password("/data/a@b") == "/data/a@b"


def test_marks_of_a_server_count_at_its_own_address_only() -> None:
    one = Sighting("x", 3, {}, {"etag": "1", "generation": "7"})
    other = Sighting("x", 3, {}, {"etag": "2", "generation": "7"})
    assert one.differs(other, same_place=True)
    assert not one.differs(other, same_place=False)
    assert one.differs(Sighting("x", 4), same_place=False)
    checked = Sighting("x", 3, {"crc32c": "AAA="}, {"etag": "1"})
    assert not checked.differs(Sighting("x", 3, {"crc32c": "AAA="}, {"etag": "2"}), same_place=True)
    assert checked.differs(Sighting("x", 3, {"crc32c": "BBB="}, {"etag": "1"}), same_place=False)


# --- servers ---


class _Handler(http.server.BaseHTTPRequestHandler):
    """Serves one content with one ETag, or an error."""

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        state: dict[str, Any] = self.server.state  # type: ignore[attr-defined]
        if state["status"] != 200:
            self.send_error(state["status"])
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(state["content"])))
        for name, value in state["headers"].items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(state["content"])

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def web() -> Iterator[tuple[str, dict[str, Any]]]:
    """The address of a server, and what it serves."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    state: dict[str, Any] = {"status": 200, "content": b"0123456789", "headers": {"ETag": '"one"'}}
    server.state = state  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/a.txt", state
    server.shutdown()
    server.server_close()
    thread.join()


def test_over_http_etag_date_and_length_are_compared(web: tuple[str, dict[str, Any]], prefix: Path) -> None:
    url, state = web
    external = External(url, "v1")
    use(prefix, external)
    state["headers"] = {"ETag": 'W/"one"'}
    assert use(prefix, external, seed=1)
    state["headers"] = {"ETag": '"two"'}
    assert "etag one, and has 10 bytes, etag two" in refusal(prefix, external, seed=2)
    state["headers"] = {}
    assert use(prefix, external, seed=2)
    state["content"] = b"0123"
    assert "had 10 bytes, etag one, and has 4 bytes" in refusal(prefix, external, seed=3)


def test_a_missing_page_is_an_error_and_a_busy_server_is_asked_again(
    web: tuple[str, dict[str, Any]], prefix: Path
) -> None:
    url, state = web
    state["status"] = 404
    assert f"config.files[0]: there is no file {url!r}" in refusal(prefix, External(url, "v1"))
    state["status"] = 503
    with pytest.raises(StoreUnavailable, match=r"config\.files\[0\]: .*cannot be reached"):
        see("config.files[0]", External(url, "v1"))


@pytest.fixture(scope="module")
def servers() -> Iterator[Callable[[str], Emulator]]:
    with ExitStack() as stack:
        yield functools.cache(lambda kind: stack.enter_context(SERVERS[kind]()))


@pytest.fixture
def plain_gcs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The client of GCS without its looks for credentials and for kinds of buckets, which take seconds a thread."""
    usual = fsspec.get_filesystem_class("gs")
    fsspec.register_implementation("gs", gcsfs.core.GCSFileSystem, clobber=True)
    monkeypatch.setitem(fsspec.config.conf, "gs", {"token": "anon"})
    yield
    fsspec.register_implementation("gs", usual, clobber=True)


@pytest.mark.usefixtures("plain_gcs")
@pytest.mark.parametrize("kind", sorted(SERVERS))
def test_in_a_bucket_checksums_or_etags_are_compared(
    kind: str, servers: Callable[[str], Emulator], prefix: Path, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = servers(kind)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    forget_clients()
    folder = server.prefix(uuid.uuid4().hex)
    filesystem = fsspec.filesystem(server.scheme)
    for name in ("a", "b"):
        filesystem.pipe_file(f"{folder}/{name}.txt", name.encode() * 10)
    one, pattern = External(f"{folder}/a.txt", "v1"), External(f"{folder}/*.txt", "v1")
    use(prefix, one)
    use(prefix, pattern, seed=9)  # the path is no part of the identity
    note = json.loads(next(prefix.glob("_externals/v1-a-txt-*/*.json")).read_text())
    assert note["address"] == f"{folder}/a.txt"
    assert {**note["files"][0]["content"], **note["files"][0]["place"]}
    filesystem.pipe_file(f"{folder}/a.txt", b"a" * 10)
    assert use(prefix, one, seed=1)
    filesystem.pipe_file(f"{folder}/a.txt", b"A" * 10)
    assert "a.txt had 10 bytes" in refusal(prefix, one, seed=2)
    assert "a.txt had 10 bytes" in refusal(prefix, pattern, seed=2)
    filesystem.pipe_file(f"{folder}/a.txt", b"a" * 10)
    filesystem.rm_file(f"{folder}/b.txt")
    assert "b.txt is gone" in refusal(prefix, pattern, seed=2)
    (data / "a.txt").write_bytes(b"a" * 11)
    assert f"at {folder}/a.txt then" in refusal(prefix, External(str(data / "a.txt"), "v1"), seed=3)
    (data / "a.txt").write_bytes(b"a" * 10)
    assert use(prefix, External(str(data / "a.txt"), "v1"), seed=3)
    forget_clients()
