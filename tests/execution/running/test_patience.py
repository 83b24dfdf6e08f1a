"""The driver's own requests outlast a store that gives no answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from marin.execution import Runner, RunOptions, make_plan
from marin.execution.running import patience
from marin.execution.running.inline import InlineBackend
from marin.execution.running.patience import PatientStore
from marin.storage import AlreadyExists, CountedStore, ObjectInfo, Store, StoreUnavailable, StoreUnreachable
from tests.execution.graphs import Probe, diamond, executions


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(patience, "LONGEST_PAUSE_SECONDS", 0.002)


class Silent:
    """A store of which every request fails a few times, before or after it was carried out."""

    def __init__(self, store: Store, times: int, *, after: bool = False) -> None:
        self.store = store
        self.times = times
        self.after = after
        self.asked: dict[tuple[str, Any], int] = {}

    def __getattr__(self, name: str) -> Any:
        inner: Callable[..., Any] = getattr(self.store, name)
        if name not in ("read", "create", "put", "size", "list", "delete"):
            return inner

        def request(*arguments: Any) -> Any:
            key = (name, arguments[0] if arguments else "")
            self.asked[key] = self.asked.get(key, 0) + 1
            fails = self.asked[key] <= self.times
            if fails and not self.after:
                raise StoreUnavailable("no answer")
            result = inner(*arguments)
            if fails:
                raise StoreUnavailable("the answer was lost")
            return result

        return request


def patient(store: Any, seconds: float = 30.0) -> PatientStore:
    return PatientStore(store, threading.Event(), seconds)


@pytest.mark.parametrize("after", [False, True])
def test_every_request_is_repeated_until_it_is_answered(store: Store, after: bool) -> None:
    silent = patient(Silent(store, 3, after=after))
    silent.create("claims/1", b"mine")
    silent.put("beat", b"1")
    assert silent.read("claims/1") == b"mine"
    assert silent.size("claims/1") == 4 and silent.exists("beat") and not silent.exists("absent")
    assert [info.key for info in silent.list("claims")] == ["claims/1"]
    silent.delete("beat")
    assert not store.exists("beat")


def test_after_a_lost_reply_another_ones_object_is_not_taken_for_ours(store: Store) -> None:
    store.create("claims/1", b"theirs")
    with pytest.raises(AlreadyExists):
        patient(Silent(store, 2)).create("claims/1", b"mine")
    assert store.read("claims/1") == b"theirs"


def test_an_equal_object_that_was_there_before_is_not_ours_when_every_try_was_answered(store: Store) -> None:
    store.create("claims/1", b"same")
    with pytest.raises(AlreadyExists):
        patient(store).create("claims/1", b"same")


def test_patience_ends_with_its_time_and_with_the_run(store: Store) -> None:
    with pytest.raises(StoreUnavailable):
        patient(Silent(store, 10**9), 0.05).read("absent")
    stopping = threading.Event()
    threading.Timer(0.1, stopping.set).start()
    started = time.monotonic()
    with pytest.raises(StoreUnavailable):
        PatientStore(Silent(store, 10**9), stopping, 60.0).read("absent")
    assert time.monotonic() - started < 10


def test_an_address_where_nothing_ever_answered_is_said_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[str] = []

    def nobody(prefix: str = "") -> tuple[str, ...]:
        tries.append(prefix)
        raise StoreUnreachable("no network")

    monkeypatch.setattr(store, "folders", nobody)
    with pytest.raises(StoreUnreachable):
        PatientStore(store, threading.Event()).folders("_runs")
    assert tries == ["_runs"]


def test_a_listing_that_breaks_off_begins_again_and_shows_everything(store: Store) -> None:
    for number in range(9):
        store.create(f"steps/{number}", b"")

    class Breaking(CountedStore):
        """Gives two objects a page, and no answer for the third page of its first two listings."""

        listings = 0

        def pages(self, prefix: str = "") -> Iterator[list[ObjectInfo]]:
            self.listings += 1
            infos = self.store.list(prefix)
            for start in range(0, len(infos), 2):
                if start == 4 and self.listings < 3:
                    raise StoreUnavailable("no answer")
                yield infos[start : start + 2]

    breaking = Breaking(store)
    pages = patient(breaking).pages("steps")
    assert [info.key for info in next(pages)] == ["steps/0", "steps/1"]
    assert {info.key for page in pages for info in page} == {f"steps/{number}" for number in range(9)}
    assert breaking.listings == 3


@pytest.mark.parametrize("after", [False, True])
def test_a_run_goes_through_although_every_request_of_the_driver_fails_twice(
    store: Store, probe: Probe, after: bool
) -> None:
    silent: Any = Silent(store, 2, after=after)
    plan = make_plan([diamond(probe)], store)
    runner = Runner(silent, plan, RunOptions(retry_pause=0.001), InlineBackend)
    result = runner.run()
    assert result.succeeded, [progress.failure for progress in result.steps]
    for name in ("leaf-a", "leaf-b", "upper-a", "upper-b", "joined"):
        assert executions(probe.tally, name) >= 1
    assert make_plan([diamond(probe)], store).to_do() == []
