"""A cluster of several nodes that is joined by its address. The tests use it up: each leaves it to the next as it is.

All its nodes are on this machine, and listen on loopback when the tests run in a network namespace of their own.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import secrets
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from marin.execution import Fleet, make_plan
from marin.execution.fleet import Elastic
from marin.execution.planning.plan import record_of
from marin.execution.records import materialise_record
from marin.storage import MissingObject, open_store
from marin.storage.local import LocalStore
from tests.execution.cluster.nodes import Joined, Nodes
from tests.execution.cluster.ray_graphs import Deeds, Seen, credentials, deeds, digest_of, gang_beside_shards, shift_on
from tests.execution.graphs import Numbers, Probe, executing, executions
from tests.storage.backends import wait_for

pytestmark = [pytest.mark.ray, pytest.mark.slow]

SHARDS = 8
CREDENTIALS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GOOGLE_APPLICATION_CREDENTIALS")


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    """Three nodes: a head, and two that have four processors together."""
    found = Nodes((2, 2))
    yield found
    found.shutdown()


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Credentials that only the driver has; the last variable names a file of them."""
    file = tmp_path_factory.mktemp("secret") / "key.json"
    file.write_text(f'{{"private_key": "{secrets.token_hex(20)}"}}')
    return {CREDENTIALS[0]: secrets.token_hex(20), CREDENTIALS[1]: secrets.token_hex(20), CREDENTIALS[2]: str(file)}


@pytest.fixture(scope="module")
def driver(nodes: Nodes, values: dict[str, str]) -> Iterator[Joined]:
    """A driver process that has joined the nodes."""
    found = Joined(nodes.address, values)
    yield found
    found.shutdown()


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    return tmp_path / "prefix"


@pytest.fixture
def probe(tmp_path: Path) -> Probe:
    (tmp_path / "tally").mkdir()
    return Probe(str(tmp_path / "tally"), str(tmp_path / "go"))


class HalfBlind(LocalStore):
    """A folder that nodes with the variable BLIND do not see."""

    def read(self, key: str) -> bytes:
        if os.environ.get("BLIND"):
            raise MissingObject(f"nothing lies under {self.url_of(key)}")
        return super().read(key)


def result_of(prefix: Path, target: Numbers | Seen) -> Numbers | Seen:
    store = open_store(prefix)
    (step,) = make_plan([target], store).targets
    found = materialise_record(store, record_of(step, store), type(target))
    assert isinstance(found, type(target))
    return found


def test_results_do_not_depend_on_the_number_of_workers_nor_on_who_is_first(
    driver: Joined, nodes: Nodes, probe: Probe, tmp_path: Path
) -> None:
    free = Probe(probe.tally)
    digests = set()
    for number, (reserved, seed) in enumerate(((0, 1), (0, 2), (3, 3))):
        before = set(Path(probe.tally).iterdir())
        with driver.reserved(reserved):
            report = driver.run(tmp_path / str(number), deeds, "x", Deeds(SHARDS, longest=0.3, seed=seed), free)
        assert set(report.statuses.values()) == {"done"}, report.messages
        digests.add(report.digests)
        begun = set(Path(probe.tally).iterdir()) - before
        assert len([path for path in begun if path.name.startswith("shard-")]) == SHARDS
    assert len(digests) == 1
    values = result_of(tmp_path / "2", deeds("x", Deeds(SHARDS), free))
    assert isinstance(values, Numbers)
    assert values.values == tuple(n**3 for n in range(SHARDS))


def files_that_hold(value: str, folder: Path) -> list[str]:
    found = []
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place) / name
            try:
                if stat.S_ISREG(path.lstat().st_mode) and value.encode() in path.read_bytes():
                    found.append(str(path))
            except FileNotFoundError:  # Ray turned a log over
                continue
    return found


def test_the_stores_credentials_reach_the_workers_of_shards_and_are_written_nowhere(
    driver: Joined, nodes: Nodes, values: dict[str, str], prefix: Path
) -> None:
    report = driver.run(prefix, credentials, CREDENTIALS)
    assert set(report.statuses.values()) == {"done"}, report.messages
    content = Path(values[CREDENTIALS[2]]).read_text()
    expected = (values[CREDENTIALS[0]], values[CREDENTIALS[1]], content)
    seen = result_of(prefix, credentials(CREDENTIALS))
    assert isinstance(seen, Seen)
    assert seen.digests == tuple(digest_of(value) for value in expected)
    assert len(list(nodes.session.rglob("*.log"))) > 5
    for value in (*expected[:2], content.split('"')[3]):
        assert files_that_hold(value, nodes.session) == []
        assert files_that_hold(value, prefix) == []


def test_a_node_with_another_version_or_without_sight_of_the_prefix_is_named(
    driver: Joined, nodes: Nodes, tmp_path: Path
) -> None:
    (tmp_path / "odd/tokenizers-9.9.9.dist-info").mkdir(parents=True)
    (tmp_path / "odd/tokenizers-9.9.9.dist-info/METADATA").write_text("Name: tokenizers\nVersion: 9.9.9\n")
    store = HalfBlind(tmp_path / "prefix")
    assert driver.examine(store, compare=True) == ""
    odd = nodes.add(1, {"PYTHONPATH": str(tmp_path / "odd"), "BLIND": "1"})
    of_versions, of_prefix = driver.examine(store, compare=True), driver.examine(store, compare=False)
    nodes.kill(odd)
    here = importlib.metadata.version("tokenizers")
    assert of_versions.startswith("the node ") and of_versions.count("the node ") == 1
    assert f"has tokenizers 9.9.9, and the driver has {here}; " in of_versions
    assert of_prefix.startswith(f"the prefix {store.url} is a folder of the driver's machine, and the node ")
    assert of_prefix.count("the node ") == 1 and "cannot see it: use a bucket" in of_prefix
    assert list((tmp_path / "prefix/_probe").iterdir()) == []


def finished(prefix: Path) -> set[int]:
    """Shards with a finish mark."""
    return {int(path.parent.name[:5]) for path in prefix.glob("test/deeds/*/state/*/map00/*/done.json")}


def test_a_killed_nodes_gang_and_shards_come_back_on_the_others_and_finished_shards_are_not_redone(
    driver: Joined, nodes: Nodes, prefix: Path, probe: Probe
) -> None:
    ranks, shards = 3, 20  # of four processors on two nodes, the gang takes three and leaves the shards one
    running = driver.start(prefix, gang_beside_shards, ranks, shards, 1.0, probe)

    def lives(count: int) -> bool:
        return all(executions(probe.tally, f"rank-{rank}") == count for rank in range(ranks))

    wait_for(lambda: lives(1) and len(finished(prefix)) >= 3, 60)
    nodes.add(2)
    homes = [nodes.node_of(executing(probe.tally, f"rank-{rank}")[0]) for rank in range(ranks)]
    (lonely,) = [home for home in homes if homes.count(home) == 1]
    done = finished(prefix)
    nodes.kill(lonely)
    killed = time.monotonic()
    wait_for(lambda: lives(2), 60)
    assert time.monotonic() - killed < 40
    Path(probe.hold).touch()
    report = running.result(90)
    assert set(report.statuses.values()) == {"done"}, report.messages
    assert all(executions(probe.tally, f"shard-{number}") == 1 for number in done)
    assert sum(executions(probe.tally, f"shard-{number}") for number in range(shards)) <= shards + 4


def lives(probe: Probe, world: int, node: str) -> int:
    """Ranks that began on a node in a world of that size."""
    return len(list(Path(probe.tally).glob(f"{world}-rank-?@{node}.*")))


def what_happened(prefix: Path) -> list[str]:
    """What became of gangs, in order."""
    lines = [json.loads(line) for path in prefix.glob("_runs/*/events-*") for line in path.read_text().splitlines()]
    ordered = sorted(lines, key=lambda line: line["time"])
    return [line["event"] for line in ordered if line["event"].startswith("gang.")]


def test_a_gang_goes_on_with_fewer_workers_ends_in_order_for_more_and_leaves_a_node_that_is_drained(
    driver: Joined, nodes: Nodes, prefix: Path, probe: Probe
) -> None:
    for old in list(nodes.workers):
        nodes.kill(old)
    first, _ = nodes.add(2, {"NODE_NAME": "one"}, wait=False), nodes.add(2, {"NODE_NAME": "two"})
    elastic = Elastic(min_workers=2, patience_seconds=3.0, interval_seconds=1.0)
    fleet = Fleet(workers=4, workers_per_node=2, elastic=elastic, stop_seconds=20)
    running = driver.start(prefix, shift_on, fleet, "", (4, 2), probe)
    wait_for(lambda: lives(probe, 4, "one") == lives(probe, 4, "two") == 2, 60)
    nodes.kill(first)
    wait_for(lambda: lives(probe, 2, "two") == 2, 60)
    third = nodes.add(2, {"NODE_NAME": "three"})
    wait_for(lambda: lives(probe, 4, "three") == 2, 60)
    assert executions(probe.tally, "saved-2") == 2
    nodes.drain(third, seconds=60)
    wait_for(lambda: lives(probe, 2, "two") == 4, 60)
    assert executions(probe.tally, "saved-4") == 4
    Path(probe.hold).touch()
    report = running.result(60)
    assert set(report.statuses.values()) == {"done"}, report.messages
    values = result_of(prefix, shift_on(fleet, "", (4, 2), probe))
    assert isinstance(values, Numbers)
    assert values.values == (2, 2)
    assert what_happened(prefix) == [
        "gang.restarted",
        "gang.smaller",
        "gang.stopping",
        "gang.resized",
        "gang.stopping",
        "gang.restarted",
        "gang.smaller",
    ]


def test_a_node_that_ends_two_gangs_is_avoided_and_a_killed_driver_leaves_no_rank(
    driver: Joined, nodes: Nodes, prefix: Path, probe: Probe
) -> None:
    nodes.add(1, {"NODE_NAME": "bad"})
    fleet = Fleet(workers=3, elastic=Elastic(min_workers=2, patience_seconds=3.0))
    driver.start(prefix, shift_on, fleet, "the bad node kills", (3, 2), probe)
    wait_for(lambda: lives(probe, 2, "two") == 2, 60)
    assert lives(probe, 3, "bad") == 2
    ranks = [process for rank in (0, 1) for process in executing(probe.tally, f"2-rank-{rank}@two")]
    assert all(Path(f"/proc/{process}").exists() for process in ranks)
    driver.kill()
    wait_for(lambda: not any(Path(f"/proc/{process}").exists() for process in ranks), 30)


EXPERIMENT = """
import sys

from steps_beside import held
from marin.cli.experiment import experiment_main
from marin.execution.cluster import head_watch
from tests.execution.graphs import Probe

head_watch.LOST_SECONDS = 5.0
tally, hold, *flags = sys.argv[1:]
if __name__ == "__main__":
    experiment_main(lambda scale: held(Probe(tally, hold)), default="smoke", argv=flags)
"""
STEPS_BESIDE = """
from marin.execution import step
from tests.execution.graphs import Probe, Text

@step("test/held", version="1")
def held(probe: Probe) -> Text:
    probe.note("held")
    probe.wait()
    return Text(text="held")
"""
ROOT = Path(__file__).parents[3]


def test_when_the_head_is_lost_the_run_ends_soon_with_one_message_and_its_claims_are_free(
    driver: Joined, nodes: Nodes, prefix: Path, probe: Probe
) -> None:
    address = nodes.address
    (prefix.parent / "mine").mkdir()
    script = prefix.parent / "mine/experiment.py"  # outside of the project, as its steps are
    script.write_text(EXPERIMENT)
    script.with_name("steps_beside.py").write_text(STEPS_BESIDE)
    with subprocess.Popen(
        [sys.executable, str(script), probe.tally, probe.hold, "--prefix", str(prefix), "--cluster", address],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        try:
            wait_for(lambda: executions(probe.tally, "held") == 1, 60)
            (process,) = executing(probe.tally, "held")
            nodes.kill_head()
            lost = time.monotonic()
            out, err = run.communicate(timeout=60)
        finally:
            run.kill()
    assert time.monotonic() - lost < 30
    assert run.returncode == 1, err
    said = [line for line in err.splitlines() if "same command" in line]
    assert len(said) == 1, err
    assert f"the cluster's head at {address} is silent" in said[0]
    assert "start the cluster, and run the same command again" in said[0]
    assert "Traceback" not in err
    assert "failed:" not in out + err
    wait_for(lambda: not Path(f"/proc/{process}").exists(), 10)
    claims = list(prefix.glob("_claims/*/*.json"))
    assert claims and all(claim.with_suffix(".released").exists() for claim in claims)
    assert list(prefix.glob("_failed/**/*.json")) == []
