"""What is found on the workers of a fleet before a run, with faults put in."""

from __future__ import annotations

import importlib
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from marin.execution import Fleet
from marin.operate import Finding, Flight, Level, passed, preflight
from marin.operate.leftovers import processes_left
from marin.operate.preflight import (
    judge,
    judge_clocks,
    judge_collectives,
    judge_memory,
    judge_regions,
    judge_store,
    judge_versions,
)
from marin.operate.regions import across_regions
from marin.operate.worker_report import CollectiveSpeed, StoreSpeed, WorkerReport
from marin.storage import StoreError
from marin.storage.local import LocalStore


def reports(count: int = 4) -> list[WorkerReport]:
    """Workers that are well."""
    return [
        WorkerReport(
            rank=rank,
            host=f"host-{rank // 2}",
            versions={"python": "3.11.7", "torch": "2.13.0", "driver": "580.1"},
            device="NVIDIA H200",
            memory=140_000_000_000,
            region="europe-west4",
            store=StoreSpeed(0.05, 200e6, 400e6),
            collectives=CollectiveSpeed("nccl", True, 100e9, 50e9),
            clock=1000.0 + rank / 1000,
            store_clock=0.0,
        )
        for rank in range(count)
    ]


def with_one(**fault: object) -> list[WorkerReport]:
    """One of them is not."""
    well = reports()
    return [*well[:2], replace(well[2], **fault), well[3]]  # type: ignore[arg-type]


def test_workers_that_are_well_may_start() -> None:
    findings = judge(reports(), 4)
    assert {finding.level for finding in findings} == {Level.ok}
    assert [finding.subject for finding in findings] == ["store", "collectives", "versions", "clocks", "leftovers"]


def test_a_worker_that_cannot_use_the_store_or_only_slowly_is_named() -> None:
    refused = judge_store(with_one(store=None, errors={"store": "StoreError: 403"}))
    assert refused.level is Level.fail
    assert "rank 2 (host-1) cannot use the prefix: StoreError: 403" in refused.detail
    slow = judge_store(with_one(store=StoreSpeed(0.05, 1e6, 400e6)))
    assert slow.level is Level.warn
    assert "write 1 MB/s" in slow.detail and "slow: rank 2 (host-1)" in slow.detail


def test_collectives_that_fail_or_give_wrong_sums_stop_the_run() -> None:
    absent = judge_collectives(with_one(collectives=None, errors={"collectives": "RuntimeError: timed out"}), 4)
    wrong = judge_collectives(with_one(collectives=CollectiveSpeed("nccl", False, 1e9, 1e9)), 4)
    assert (absent.level, wrong.level) == (Level.fail, Level.fail)
    assert "3 of 4 workers met; rank 2 (host-1): RuntimeError: timed out" in absent.detail
    assert "came out wrong on rank 2 (host-1)" in wrong.detail
    assert judge_collectives(reports(3), 4).level is Level.fail


def test_another_version_on_one_worker_is_named_with_both() -> None:
    found = judge_versions(with_one(versions={"python": "3.11.7", "torch": "2.12.0", "driver": "570.2"}))
    assert found.level is Level.fail
    assert "torch is 2.13.0 on most workers, and 2.12.0 on rank 2 (host-1)" in found.detail
    assert "driver is 580.1 on most workers, and 570.2 on rank 2 (host-1)" in found.detail


@pytest.mark.parametrize(
    ("fault", "level", "text"),
    [
        ({"clock": 1001.0}, Level.ok, "within 1.00 s"),
        ({"clock": 1010.0}, Level.warn, "rank 2 (host-1) is 10 s ahead of the other workers"),
        ({"clock": 880.0}, Level.fail, "rank 2 (host-1) is 120 s behind the other workers"),
        ({"store_clock": 300.0}, Level.fail, "rank 2 (host-1) is 300 s behind the store"),
    ],
)
def test_clocks_are_compared_with_each_other_and_with_the_store(
    fault: dict[str, float], level: Level, text: str
) -> None:
    found = judge_clocks(with_one(**fault))
    assert found.level is level
    assert text in found.detail


def test_workers_of_another_region_than_the_prefix_are_refused_unless_it_is_meant() -> None:
    assert judge_regions(reports(), "europe-west4", any_region=False).level is Level.ok
    assert judge_regions(reports(), "us-central1", any_region=False).level is Level.fail
    assert judge_regions(reports(), "us-central1", any_region=True).level is Level.ok
    assert judge_regions(with_one(region="us-east1"), "", any_region=False).level is Level.warn
    assert judge_regions(with_one(region=""), "europe-west4", any_region=False).level is Level.ok


def test_a_multi_region_holds_the_regions_of_its_part_of_the_world() -> None:
    assert not across_regions("us-central1", "us")
    assert not across_regions("europe-west4", "eu")
    assert across_regions("europe-west4", "us")
    assert not across_regions("", "us") and not across_regions("us-east-1", "")


def test_memory_that_is_short_is_refused_and_that_is_tight_is_told() -> None:
    def needs(gigabytes: float) -> Finding:
        return judge_memory(with_one(memory=80_000_000_000), lambda device: (int(gigabytes * 1e9), device))

    assert needs(70).level is Level.ok
    assert needs(75).level is Level.warn
    short = needs(90)
    assert short.level is Level.fail
    assert "needs about 90.0 GB (cuda); 80.0 GB are free at the least; tight on rank 2 (host-1)" in short.detail
    assert "training.micro_batch_sequences" in short.way_out


class Refusing(LocalStore):
    """A folder in which the second worker may not write."""

    def create(self, key: str, data: bytes) -> None:
        if os.environ.get("RANK") == "1":
            raise StoreError("403 Forbidden")
        super().create(key, data)


FAKE_NVIDIA_SMI = """#!/bin/sh
case "$1" in *compute-apps*) echo "4242, someone-elses-training";; esac
"""


def test_workers_of_this_machine_find_what_is_wrong_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/nvidia-smi").write_text(FAKE_NVIDIA_SMI)
    (tmp_path / "bin/nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("MARIN_REGION", "europe-west4")
    module = importlib.import_module("marin.operate.preflight")  # the package calls its function so, too
    monkeypatch.setattr(module, "open_store", lambda url: Refusing(tmp_path / "prefix"))
    flight = Flight(str(tmp_path / "prefix"), Fleet(workers=2), needed=lambda device: (1 << 20, device))
    findings = {finding.subject: finding for finding in preflight(flight)}
    assert not passed(list(findings.values()))
    assert {name for name, finding in findings.items() if finding.level is Level.fail} == {"store", "leftovers"}
    assert "rank 1" in findings["store"].detail and "403 Forbidden" in findings["store"].detail
    assert "the program 4242 (someone-elses-training) on a GPU" in findings["leftovers"].detail
    assert findings["collectives"].level is findings["memory"].level is findings["clocks"].level is Level.ok
    assert "2 in europe-west4" in findings["regions"].detail
    assert [path for path in (tmp_path / "prefix").rglob("*") if path.is_file()] == []


def test_a_rank_of_another_gang_is_found_on_the_machine() -> None:
    with subprocess.Popen(["ray::RankProcess.run", "60"], executable="/bin/sleep") as rank:
        try:
            assert any(f"the rank process {rank.pid} " in left for left in processes_left(frozenset()))
            assert not any(str(rank.pid) in left for left in processes_left(frozenset([rank.pid])))
        finally:
            rank.kill()


@pytest.mark.ray
def test_workers_on_ray_take_the_runs_places_and_give_them_back(tmp_path: Path, ray_cluster: None) -> None:
    import ray

    flight = Flight(str(tmp_path / "prefix"), Fleet(workers=2), cluster="auto")
    findings = preflight(flight)
    # Other tests may have ranks on this machine.
    assert passed([finding for finding in findings if finding.subject != "leftovers"]), findings
    assert "nodes" in {finding.subject for finding in findings}
    assert any("gloo sums" in finding.detail for finding in findings)
    refused = preflight(replace(flight, fleet=Fleet(workers=64)))
    assert [finding.subject for finding in refused] == ["workers"]
    assert "64 CPU in all; the cluster has 2" in refused[0].detail
    assert ray.available_resources()["CPU"] == 2
