"""When a cluster counts as lost."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from marin.execution.cluster import head_watch
from marin.execution.cluster.head_watch import Endpoint, HeadWatch


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_watch, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(head_watch, "LOST_SECONDS", 0.5)


def test_a_cluster_is_lost_when_one_of_its_endpoints_stays_silent_and_is_told_so_once() -> None:
    told: list[str] = []
    lost = threading.Event()

    def note(message: str) -> None:
        told.append(message)
        lost.set()

    with socket.create_server(("127.0.0.1", 0)) as head, socket.create_server(("127.0.0.1", 0)) as own:
        ports = [head.getsockname()[1], own.getsockname()[1]]
        watch = HeadWatch([Endpoint("the head", "127.0.0.1", ports[0]), Endpoint("ours", "127.0.0.1", ports[1])], note)
        watch.start()
        assert not lost.wait(1.0)
        head.close()
        closed = time.monotonic()
        assert lost.wait(10)
        assert time.monotonic() - closed > 0.4
        time.sleep(0.3)
    watch.stop()
    assert [message.partition(" is silent")[0] for message in told] == [f"the head at 127.0.0.1:{ports[0]}"]


def test_a_silence_shorter_than_that_is_forgiven() -> None:
    told: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as head:
        port = head.getsockname()[1]
    watch = HeadWatch([Endpoint("the head", "127.0.0.1", port)], told.append)
    watch.start()
    time.sleep(0.2)
    with socket.create_server(("127.0.0.1", port)):
        time.sleep(1.0)
        watch.stop()
        time.sleep(0.1)
    assert told == []
