"""Fixtures that several rooms' tests share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# Ray gives its own processes a fixed time to start, which a machine busy with other work can exceed.
START_ATTEMPTS = 3


def pytest_configure() -> None:
    """Ray's workers run at niceness 15 unless told otherwise, and starve beside tests of other processes."""
    os.environ.setdefault("RAY_worker_niceness", "0")


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """One embedded Ray of two CPUs for the whole session; a test that asks for it also carries `@pytest.mark.ray`.

    Ray is imported only here, so that a selection without such tests never pays for it.
    """
    import ray

    for attempt in range(START_ATTEMPTS):
        try:
            ray.init(
                address="local",
                num_cpus=2,
                resources={"marin_fixed": 1},
                include_dashboard=False,
                object_store_memory=256_000_000,
                configure_logging=False,
                log_to_driver=False,
                _node_ip_address="127.0.0.1",
            )
            break
        except Exception as error:  # Ray gives this failure no class of its own
            ray.shutdown()
            if "timed out during startup" not in str(error) or attempt == START_ATTEMPTS - 1:
                raise
    try:
        yield
    finally:
        ray.shutdown()


@pytest.fixture(scope="session")
def smoke_prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The artifacts of one whole run of experiments/exp_535b.py at the smoke scale; not to be written to.

    A test that asks for it also carries `@pytest.mark.ray`.
    """
    from tests.pipeline.running import run

    prefix = tmp_path_factory.mktemp("smoke") / "artifacts"
    result = run(prefix)
    assert result.returncode == 0, f"{result.stdout[-4000:]}\n{result.stderr[-4000:]}"
    return prefix
