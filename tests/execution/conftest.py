"""Stores and a tally of calls, for the tests of this room."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from marin.storage import Store, open_store
from tests.execution.graphs import Probe


@pytest.fixture
def store() -> Store:
    return open_store(f"memory://{uuid.uuid4().hex}")


@pytest.fixture
def local_store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "prefix")


@pytest.fixture
def probe(tmp_path: Path) -> Probe:
    (tmp_path / "tally").mkdir()
    return Probe(str(tmp_path / "tally"))
