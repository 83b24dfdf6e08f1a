"""Stores of each kind, those of S3 and GCS on servers that every test of a process shares."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from marin.storage import Store, open_store
from tests.storage.backends import KINDS, store_of
from tests.storage.emulators import SERVERS, Emulator, forget_clients


@pytest.fixture(scope="session")
def servers() -> Iterator[Callable[[str], Emulator]]:
    """The server of a kind, started when it is first asked for."""
    running: dict[str, Emulator] = {}
    with ExitStack() as stack:

        def server(kind: str) -> Emulator:
            if kind not in running:
                running[kind] = stack.enter_context(SERVERS[kind]())
            return running[kind]

        yield server


@pytest.fixture
def emulator(
    servers: Callable[[str], Emulator], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], Emulator]]:
    """The server of a kind, with this process's clients pointed to it for one test."""

    def use(kind: str) -> Emulator:
        server = servers(kind)
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        return server

    forget_clients()
    yield use
    forget_clients()


@pytest.fixture(params=(*KINDS, *SERVERS))
def store(request: pytest.FixtureRequest, tmp_path: Path, emulator: Callable[[str], Emulator]) -> Store:
    """A fresh, empty store of each kind in turn."""
    if request.param in SERVERS:
        return open_store(emulator(request.param).prefix(uuid.uuid4().hex))
    return store_of(request.param, tmp_path)
