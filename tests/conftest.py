"""Fixtures that several rooms' tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """One embedded Ray of two CPUs for the whole session; a test that asks for it also carries `@pytest.mark.ray`.

    Ray is imported only here, so that a selection without such tests never pays for it.
    """
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, configure_logging=False, log_to_driver=False)
    try:
        yield
    finally:
        ray.shutdown()
