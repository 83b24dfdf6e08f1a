"""dag-05: steps that wait for their own shards do not deadlock on few processors."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from marin.execution import Runner, RunOptions, make_plan
from marin.execution.running.progress import Progress
from marin.storage import open_store
from tests.execution.driver import ray_backend
from tests.execution.graphs import MapConfig, Numbers, Probe, executions, squares
from tests.execution.running.test_runner import statuses


def workers() -> int:
    """Ray worker processes below this one."""
    names = [child.name() for child in psutil.Process().children(recursive=True) if child.is_running()]
    return sum(name.startswith("ray::") and name != "ray::IDLE" for name in names)


class Census:
    """Counts worker processes whenever something happens."""

    def __init__(self) -> None:
        self.most = 0

    def changed(self, progress: Progress, text: str = "") -> None:
        """Count."""
        self.most = max(self.most, workers())

    def advanced(self, progress: Progress) -> None:
        """Count."""
        self.most = max(self.most, workers())


@pytest.mark.ray
def test_twelve_steps_that_each_map_over_six_shards_finish_on_two_processors(tmp_path: Path, ray_cluster: None) -> None:
    tally = tmp_path / "tally"
    tally.mkdir()
    probe = Probe(str(tally))
    store = open_store(tmp_path / "prefix")
    targets: list[Numbers] = [squares(f"step-{n}", MapConfig(shards=6), probe).label(f"s{n}") for n in range(12)]
    started, census = time.monotonic(), Census()
    result = Runner(store, make_plan(list(targets), store), RunOptions(), ray_backend, census).run()
    assert set(statuses(result).values()) == {"done"}
    assert time.monotonic() - started < 120
    assert census.most < 16
    for number in range(6):
        assert executions(tally, f"shard-{number}") == 12
