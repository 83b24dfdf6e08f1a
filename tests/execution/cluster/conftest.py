"""The store of a step that runs on Ray."""

from __future__ import annotations

from pathlib import Path

import pytest

from marin.storage import Store, open_store


@pytest.fixture
def store(tmp_path: Path, ray_cluster: None) -> Store:
    """A prefix that the workers of this session's Ray see."""
    return open_store(tmp_path / "prefix")
