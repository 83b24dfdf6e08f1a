"""The runner: what becomes of steps, of their failures, and of their outputs."""

from __future__ import annotations

import io
import json
import threading
import time
from pathlib import Path

import pytest

from marin.execution import (
    FailureClass,
    Flow,
    Runner,
    RunOptions,
    Status,
    StepError,
    current_run,
    make_plan,
    materialise,
    step,
)
from marin.execution.failures import ClusterLost
from marin.execution.records import Record
from marin.execution.running.console import PlainConsole
from marin.execution.running.inline import Backend, InlineBackend
from marin.execution.running.progress import Progress
from marin.execution.running.tasks import Report
from marin.execution.running.worker import Failure, Outcome, StepTask
from marin.storage import Store, open_store
from tests.execution.graphs import (
    MapConfig,
    Probe,
    Text,
    diamond,
    executions,
    failing,
    joined,
    leaf,
    squares,
    upper,
)
from tests.execution.running.runs import failure_of, run, statuses


def test_the_record_lists_files_flows_dependencies_and_where_they_came_from(store: Store, probe: Probe) -> None:
    result = run(upper(leaf("a", probe).label("first"), probe), store)
    assert result.succeeded
    above, below = (progress.step for progress in result.steps)
    record = Record.from_json(below.record_key, store.read(below.record_key))
    assert (record.name, record.version, record.generation, record.identity) == ("test/upper", "1", 1, below.identity)
    (file,) = record.files
    assert (file.name, file.size) == ("text.txt", 1)
    assert file.sha256 == "559aead08264d5795d3909718cdd05abd49572e84fe55590eef31a88a08fdffd"  # printf A | sha256sum
    assert store.read(file.key) == b"A"
    assert file.key.startswith(f"test/upper/{below.identity[:10]}/a1-")
    (dependency,) = record.dependencies
    assert (dependency.path, dependency.identity, dependency.record) == ("source", above.identity, above.record_key)
    assert above.folder == f"test/leaf/first-{above.identity[:10]}"
    assert "first" not in above.record_key
    assert {"run", "attempt", "epoch", "host", "started", "finished", "python"} <= set(record.provenance)


def test_a_run_leaves_its_plan_events_heartbeat_and_logs(store: Store, probe: Probe) -> None:
    result = run(diamond(probe), store, attachments={"config.yaml": b"steps: 1\n"})
    folder = f"_runs/{result.run}"
    plan = json.loads(store.read(f"{folder}/plan.json"))
    assert [one["name"] for one in plan["steps"]].count("test/leaf") == 2
    assert store.read(f"{folder}/config.yaml") == b"steps: 1\n"
    segments = [info.key for info in store.list(folder) if "/events-" in info.key]
    events = [json.loads(line) for key in segments for line in store.read(key).splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds[0] == "run.started"
    assert kinds[-1] == "run.finished"
    assert kinds.count("step.done") == 5
    assert store.exists(f"{folder}/beat")


def test_independent_steps_run_at_the_same_time(store: Store, probe: Probe) -> None:
    meeting = threading.Barrier(2, timeout=30)

    class Meeting(InlineBackend):
        def run(self, task: StepTask, report: Report) -> Outcome:
            if task.spec.name == "test/leaf":
                meeting.wait()
            return super().run(task, report)

    assert run(diamond(probe), store, Meeting).succeeded


def test_no_more_than_max_concurrent_steps_run_at_once(store: Store, probe: Probe) -> None:
    lock, now, most = threading.Lock(), 0, 0

    class Counting(InlineBackend):
        def run(self, task: StepTask, report: Report) -> Outcome:
            nonlocal now, most
            with lock:
                now += 1
                most = max(most, now)
            time.sleep(0.05)
            try:
                return super().run(task, report)
            finally:
                with lock:
                    now -= 1

    assert run(
        joined(tuple(leaf(str(number), probe) for number in range(6)), probe), store, Counting, max_concurrent=2
    ).succeeded
    assert most == 2


def test_a_failure_blocks_its_dependents_and_nothing_else(store: Store, probe: Probe) -> None:
    bad = failing("bug", leaf("a", probe), probe).label("bad")
    target = joined((upper(bad, probe).label("below"), upper(leaf("b", probe), probe).label("good")), probe)
    result = run(target, store, max_concurrent=1)
    assert not result.succeeded
    assert statuses(result) == {
        "test/leaf": "done",
        "bad": "failed",
        "below": "blocked",
        "good": "done",
        "test/joined": "blocked",
    }
    blocked = {p.step.name: p.blocked_by for p in result.steps if p.status is Status.blocked}
    assert blocked["test/upper"] == result.failures[0].step.display
    assert executions(probe.tally, "failing-bug") == 1
    again = run(target, store)
    assert executions(probe.tally, "failing-bug") == 2
    assert executions(probe.tally, "upper-b") == 1
    assert statuses(again)["bad"] == "failed"


def test_fail_fast_starts_nothing_more(store: Store, probe: Probe) -> None:
    target = joined((failing("bug", None, probe), leaf("b", probe)), probe)
    result = run(target, store, max_concurrent=1, fail_fast=True)
    assert sorted(statuses(result).values()) == ["blocked", "blocked", "failed"]


def test_a_failure_is_kept_with_class_traceback_and_node_and_is_no_answer(store: Store, probe: Probe) -> None:
    result = run(failing("bug", None, probe), store)
    (info,) = store.list("_failed")
    body = json.loads(store.read(info.key))
    assert (body["kind"], body["error"], body["message"]) == ("error", "ZeroDivisionError", "a bug of the step")
    assert 'raise ZeroDivisionError("a bug of the step")' in body["trace"]
    assert "graphs.py" in body["trace"]
    assert "pid" in body["node"]
    assert info.key.endswith(f"/{result.run}-a1.json")
    assert store.list("_steps") == []
    logs = [info.key for info in store.list(f"_runs/{result.run}/logs")]
    assert b"ZeroDivisionError" in store.read(logs[0])


def test_a_failure_keeps_the_exceptions_that_led_to_it_nearest_first(store: Store, probe: Probe) -> None:
    causes = ("ValueError: the shard cannot be read", "FileNotFoundError: no such shard")
    assert failure_of(run(failing("chain", None, probe), store)).causes == causes
    (info,) = store.list("_failed")
    assert json.loads(store.read(info.key))["causes"] == list(causes)
    assert failure_of(run(failing("bug", None, probe), store)).causes == ()


def test_an_error_of_the_steps_own_code_is_not_tried_again(store: Store, probe: Probe) -> None:
    run(failing("bug", None, probe), store)
    assert executions(probe.tally, "failing-bug") == 1


def test_a_failure_for_people_keeps_its_message(store: Store, probe: Probe) -> None:
    failure = failure_of(run(failing("people", None, probe), store))
    assert failure.expected
    assert failure.message == "the crawl has no pages"


def test_records_that_do_not_add_up_fail_the_step(store: Store, probe: Probe) -> None:
    failure = failure_of(run(failing("flow", None, probe), store))
    assert failure.kind is FailureClass.error
    assert (
        "does not account for its records: read 10, kept 7, dropped {'empty': 2}: 1 unaccounted for" in failure.message
    )


@pytest.mark.parametrize(
    "flow", [Flow("x", 1, 2), Flow("x", -1, -1), Flow("x", 1, 2, {"a": -1}), Flow("x", 0, 0, {"a": 1})]
)
def test_a_flow_must_balance_without_negative_counts(flow: Flow) -> None:
    with pytest.raises(StepError, match="does not account"):
        flow.check("step")


def test_a_result_of_another_type_fails_the_step(store: Store, probe: Probe) -> None:
    failure = failure_of(run(failing("type", None, probe), store))
    assert "returned a str; it is declared to return Text" in failure.message


class Unreliable(InlineBackend):
    """Loses the first attempts of every step."""

    def __init__(self, kind: FailureClass, losses: int) -> None:
        super().__init__()
        self.kind = kind
        self.losses = losses
        self.attempts: list[str] = []

    def run(self, task: StepTask, report: Report) -> Outcome:
        self.attempts.append(task.spec.attempt_folder)
        if len(self.attempts) <= self.losses:
            return Outcome(None, (), (), Failure(self.kind, "WorkerLost", "the worker is gone", "", ""), "some log")
        return super().run(task, report)


@pytest.mark.parametrize(
    ("kind", "losses", "succeeds"),
    [
        (FailureClass.preempted, 4, True),
        (FailureClass.memory, 1, True),
        (FailureClass.memory, 2, False),
        (FailureClass.error, 1, False),
    ],
)
def test_a_failure_is_tried_again_by_its_class(
    kind: FailureClass, losses: int, succeeds: bool, store: Store, probe: Probe
) -> None:
    backend = Unreliable(kind, losses)
    result = run(leaf("a", probe), store, lambda: backend, retry_pause=0.001)
    assert result.succeeded is succeeds
    assert len(set(backend.attempts)) == len(backend.attempts) == (losses + 1 if succeeds else losses)


def test_machines_that_are_lost_with_the_last_step_are_said_to_be_lost(store: Store, probe: Probe) -> None:
    class Lost(Unreliable):
        """Its machines are gone at the moment in which its step ends."""

        def check(self) -> None:
            if self.attempts:
                raise ClusterLost("the head is silent")

    backend = Lost(FailureClass.cancelled, losses=1)
    with pytest.raises(ClusterLost, match="the head is silent"):
        run(leaf("a", probe), store, lambda: backend)
    assert store.list("_steps") == []


def test_an_inline_step_never_starts_the_back_end(store: Store) -> None:
    @step("runner/inline", version="1", inline=True)
    def inline() -> Text:
        return Text(text="x")

    def refuse() -> Backend:
        raise AssertionError("the back end was started")

    assert run(inline(), store, refuse).succeeded


def test_a_back_end_that_does_not_start_ends_the_run_with_its_reason_and_frees_the_claims(
    store: Store, probe: Probe
) -> None:
    def refuse() -> Backend:
        raise StepError("no Ray cluster answers at 'ray://nowhere'")

    with pytest.raises(StepError, match="no Ray cluster answers"):
        run(diamond(probe), store, refuse)
    claims = [info.key for info in store.list("_claims")]
    assert [
        key for key in claims if key.endswith(".json") and f"{key.removesuffix('.json')}.released" not in claims
    ] == []
    assert store.list("_failed") == []
    assert run(diamond(probe), store).succeeded


def test_a_step_that_is_cancelled_on_its_own_ends_the_run_as_a_failure(store: Store, probe: Probe) -> None:
    @step("runner/cancelled", version="1", inline=True)
    def cancelled() -> Text:
        raise KeyboardInterrupt  # as in a worker process that is told to end

    result = run(upper(cancelled(), probe), store)
    assert statuses(result) == {"runner/cancelled": "cancelled", "test/upper": "blocked"}
    assert not result.succeeded
    assert failure_of(result).error == "KeyboardInterrupt"


class Refusing:
    """A store that creates nothing whose key holds one of the words."""

    def __init__(self, store: Store, *words: str) -> None:
        self._create = store.create
        self._words = words
        store.create = self.create  # type: ignore[method-assign]

    def create(self, key: str, data: bytes) -> None:
        if any(word in key for word in self._words):
            raise ConnectionError(f"{key}: 503 slow down")
        self._create(key, data)


def test_events_logs_and_releases_that_cannot_be_written_fail_no_step(
    store: Store, probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("marin.execution.running.runlog.FLUSH_SECONDS", 0.0)
    Refusing(store, "/events-", "/logs/", ".released")
    result = run(upper(leaf("a", probe), probe), store)
    assert result.succeeded
    assert not store.list("_failed")


def test_a_terminal_that_is_gone_fails_no_step(store: Store, probe: Probe) -> None:
    class Gone:
        def changed(self, progress: Progress, text: str = "") -> None:
            raise BrokenPipeError

        def advanced(self, progress: Progress) -> None:
            raise BrokenPipeError

    plan = make_plan([squares("x", MapConfig(shards=2), probe)], store)
    assert Runner(store, plan, RunOptions(), InlineBackend, Gone()).run().succeeded


def test_an_unwritable_prefix_is_an_error_before_anything_runs(tmp_path: Path, probe: Probe) -> None:
    (tmp_path / "file").write_text("in the way")
    blocked = open_store(tmp_path / "file" / "prefix")
    with pytest.raises(Exception, match="cannot be written") as caught:
        run(leaf("a", probe), blocked)
    assert type(caught.value).__name__ == "StoreError"
    assert executions(probe.tally, "leaf-a") == 0


def test_a_run_goes_through_memory_stores_as_well(probe: Probe, tmp_path: Path) -> None:
    found = materialise(diamond(probe), f"memory://{tmp_path.name}")
    assert found.text == "A+B"
    assert found.local("text.txt").read_bytes() == b"A+B"


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="max_concurrent must be at least 1, got 0"):
        RunOptions(max_concurrent=0)
    with pytest.raises(ValueError, match="stale_after must be positive, got -1"):
        RunOptions(stale_after=-1)


def test_scratch_is_removed_afterwards(tmp_path: Path) -> None:
    kept: list[Path] = []

    @step("runner/scratch", version="1", inline=True)
    def scratch() -> Text:
        (current_run().scratch / "file").write_text("x")
        kept.append(current_run().scratch)
        return Text(text="x")

    materialise(scratch(), str(tmp_path))
    assert not kept[0].exists()


def test_there_is_no_run_outside_a_step() -> None:
    with pytest.raises(StepError, match="there is no run here"):
        current_run()


def test_a_plain_console_says_what_became_of_each_step(store: Store, probe: Probe) -> None:
    stream = io.StringIO()
    targets = [squares("x", MapConfig(shards=2), probe), joined((failing("people", None, probe),), probe)]
    Runner(store, make_plan(targets, store), RunOptions(max_concurrent=1), InlineBackend, PlainConsole(stream)).run()
    lines = stream.getvalue().splitlines()
    assert any("\u2713 test/squares-" in line and "2 of 2 numbers, 2B in 2 files" in line for line in lines)
    assert any("\u2717 test/failing-" in line and "StepError: the crawl has no pages" in line for line in lines)
    assert any("test/joined-" in line and "blocked: needs test/failing-" in line for line in lines)
