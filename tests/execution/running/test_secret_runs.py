"""A run with a secret: its value reaches every process that needs it, and no store, log, console or Ray file."""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from marin.execution import FailureClass, Runner, RunOptions, RunResult, Secret, StepError, make_plan
from marin.execution.planning.plan import record_of
from marin.execution.records import materialise_record
from marin.execution.running.inline import Backend, InlineBackend
from marin.storage import Store, open_store
from tests.execution.driver import ray_backend
from tests.execution.secret_graph import VARIABLE, Hub, Prints, body, fingerprint, graph, keep

BACKENDS = ["inline", pytest.param("ray", marks=pytest.mark.ray)]


@pytest.fixture
def value(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A secret that the driver's environment has, and no worker's: Ray runs before it is set."""
    if "ray" in request.node.name:
        request.getfixturevalue("ray_cluster")
    found = f"s3cr3t-{uuid.uuid4().hex}"
    monkeypatch.setenv(VARIABLE, found)
    return found


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    return tmp_path / "prefix"


def run(target: Prints, store: Store, backend: str) -> RunResult:
    def make() -> Backend:
        return ray_backend() if backend == "ray" else InlineBackend()

    return Runner(store, make_plan([target], store), RunOptions(retry_pause=0.01), make).run()


def files_that_hold(value: str, folder: Path) -> list[str]:
    """Files below a folder with the value in them, in any piece of 16 characters."""
    needles = [value[start : start + 16].encode() for start in range(7, len(value) - 15)]
    found = []
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place) / name
            try:
                data = path.read_bytes() if stat.S_ISREG(path.lstat().st_mode) else b""
            except FileNotFoundError:  # Ray turned a log over
                continue
            if any(needle in data for needle in needles):
                found.append(str(path))
    return found


def places(prefix: Path, backend: str) -> Iterator[Path]:
    yield prefix
    if backend == "ray":
        import ray

        yield Path(ray._private.worker._global_node.get_session_dir_path())


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_process_has_the_value_and_nothing_written_has_it(
    backend: str, value: str, prefix: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store = open_store(prefix)
    plan = make_plan([graph()], store)
    assert run(graph(), store, backend).succeeded
    artifact = materialise_record(store, record_of(plan.targets[0], store), Prints)
    assert artifact.prints == (fingerprint(value),) * 5
    out, err = capfd.readouterr()
    assert value not in out + err
    logs = [path.read_text() for path in prefix.glob("_runs/*/logs/*.log")]
    assert any("the token is ***" in log for log in logs)
    for folder in places(prefix, backend):
        assert files_that_hold(value, folder) == []
    assert files_that_hold("unrelated-" + str(prefix), prefix) == []
    (prefix / "planted").write_text(f"x{value}x")
    assert files_that_hold(value, prefix) == [str(prefix / "planted")]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_failure_that_names_the_secret_is_kept_without_it(
    backend: str, value: str, prefix: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result = run(graph("raise"), open_store(prefix), backend)
    failures = [progress.failure for progress in result.failures if progress.failure is not None]
    assert len(failures) == 3
    for failure in failures:
        assert failure.message == "cannot fetch with '***'"
        assert "PermissionError: 401 for ***" in failure.trace
        assert value not in repr(failure)
    assert list(prefix.glob("_failed/*/*.json"))
    out, err = capfd.readouterr()
    assert value not in out + err
    for folder in places(prefix, backend):
        assert files_that_hold(value, folder) == []


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("deed", "says"),
    [("return", "would hold the value of a secret"), ("write", "the file 'config.txt' of secret/")],
)
def test_a_result_a_manifest_and_a_file_with_the_value_are_refused(
    deed: str, says: str, backend: str, value: str, prefix: Path
) -> None:
    result = run(graph(deed), open_store(prefix), backend)
    failures = [progress.failure for progress in result.failures if progress.failure is not None]
    assert len(failures) == 3
    for failure in failures:
        assert failure.kind is FailureClass.error
        assert says in failure.message
    assert not list(prefix.glob("_steps/*"))
    for folder in places(prefix, backend):
        assert files_that_hold(value, folder) == []


def test_a_secret_itself_is_refused_as_a_result(value: str, prefix: Path) -> None:
    result = run(keep(Hub({"hub": Secret(VARIABLE)})), open_store(prefix), "inline")
    (failed,) = result.failures
    assert failed.failure is not None
    assert failed.failure.message.startswith(f"result.prints[0] is Secret('{VARIABLE}'), which is never written")


def test_a_missing_variable_ends_the_run_before_anything_is_claimed(prefix: Path) -> None:
    with pytest.raises(StepError) as caught:
        run(graph(variable="MARIN_TEST_ABSENT"), open_store(prefix), "inline")
    assert "hub.tokens.hub needs the environment variable MARIN_TEST_ABSENT: set it" in str(caught.value)
    assert "secret/body" in str(caught.value)
    assert not prefix.exists()


def test_the_value_as_plain_text_in_another_setting_ends_the_run_before_it_is_written(value: str, prefix: Path) -> None:
    hub = Hub({"hub": Secret(VARIABLE)})
    with pytest.raises(StepError, match=r"the recipe of secret/body.* would hold the value of a secret"):
        run(body(hub, deed=f"log in with {value}"), open_store(prefix), "inline")
    assert not prefix.exists()
