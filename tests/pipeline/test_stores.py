"""The whole graph at the smoke scale on S3 and GCS, over a network that fails now and then."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping

import pytest

from marin.storage import open_store
from tests.pipeline.running import EXPERIMENT, environment
from tests.storage.emulators import SERVERS, forget_clients
from tests.storage.faulty import DROPPED, LOST, proxy

LIMIT_SECONDS = 500.0
CACHED_CPU_SECONDS = 5.0


def run(prefix: str, extra: Mapping[str, str]) -> tuple[str, float]:
    """What a run that succeeds prints, and the CPU seconds that it and its children took."""
    command = [sys.executable, str(EXPERIMENT), "--scale", "smoke", "--prefix", prefix]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_SECONDS, env={**environment(), **extra}
    )
    assert result.returncode == 0, f"{result.stdout[-4000:]}\n{result.stderr[-4000:]}"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return result.stdout, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", SERVERS)
def test_the_graph_runs_whole_over_an_unsteady_network_and_is_cached_afterwards(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SERVERS[kind]() as server, proxy(server.endpoint, server.scheme) as (address, faults):
        prefix, through_proxy = server.prefix("artifacts"), server.at(address).environment
        faults.left, faults.every = ["503", LOST, DROPPED, "429"], 29
        first, _ = run(prefix, through_proxy)
        assert len(faults.seen) > 10 * faults.every

        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        forget_clients()
        store = open_store(prefix)
        sizes = {info.key: info.size for info in store.list()}
        records = [json.loads(store.read(key)) for key in sizes if key.startswith("_steps/") and key.endswith(".json")]
        steps = len(records)
        assert steps == len({(record["name"], record["identity"]) for record in records}) >= 20
        for record in records:
            assert record["files"]
            for file in record["files"]:
                assert sizes[file["key"]] == file["size"]

        faults.every = 0
        faults.left = []
        faults.seen.clear()
        again, cpu_seconds = run(prefix, through_proxy)
        assert f"nothing to do: {steps} of {steps} steps are cached in {prefix}" in again
        assert again.partition("\n")[2].splitlines()[-20:] == first.splitlines()[-20:]
        methods = Counter(method for method, _ in faults.seen)
        assert set(methods) <= {"GET", "HEAD"}
        assert methods.total() <= 12
        assert {info.key: info.size for info in store.list()} == sizes
        assert cpu_seconds <= CACHED_CPU_SECONDS
    forget_clients()
