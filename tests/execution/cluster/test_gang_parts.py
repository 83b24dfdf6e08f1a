"""What a gang decides without a cluster: the order of ranks, networks, and which nodes to avoid."""

from __future__ import annotations

import socket
import subprocess
import time
import uuid

import pytest

from marin.execution import FailureClass, StepError
from marin.execution.cluster import leave
from marin.execution.cluster.gang_life import ordered
from marin.execution.cluster.gang_network import Door, address_of, interface_environment, knock
from marin.execution.cluster.gang_nodes import NodeFaults, is_hardware
from marin.execution.cluster.gang_rank import Place
from marin.execution.running.worker import Failure


def place(host: str, domain: str = "", node: str = "") -> Place:
    return Place(node or host, host, host, 1, domain or host)


def test_ranks_of_one_host_are_neighbours() -> None:
    places = [place(host) for host in ("b", "a", "b", "c", "a")]
    assert ordered(places) == [0, 2, 1, 4, 3]


def test_hosts_of_one_fast_domain_are_neighbours() -> None:
    rack = {"a": "left", "b": "right", "c": "left", "d": "right"}
    places = [place(host, rack[host]) for host in ("a", "b", "c", "d", "a", "c")]
    assert [places[worker].host for worker in ordered(places)] == ["a", "a", "c", "c", "b", "d"]


def test_an_interface_must_be_up_and_the_nodes_own_variables_must_name_one() -> None:
    assert address_of("lo", "10.0.0.1", {}) == "127.0.0.1"
    assert address_of(None, "10.0.0.1", {"NCCL_SOCKET_IFNAME": "^docker"}) == "10.0.0.1"
    assert address_of(None, "10.0.0.1", {"GLOO_SOCKET_IFNAME": "lo"}) == "10.0.0.1"
    here = socket.gethostname()
    with pytest.raises(StepError, match=f"'ib9'.* is up on {here} .*lo"):
        address_of("ib9", "10.0.0.1", {})
    with pytest.raises(StepError, match=r"NCCL_SOCKET_IFNAME on .* is '=ib9,ib8'"):
        address_of(None, "10.0.0.1", {"NCCL_SOCKET_IFNAME": "=ib9,ib8"})


def test_both_libraries_are_told_the_interface() -> None:
    assert interface_environment("ib0", "10.0.0.1") == {"NCCL_SOCKET_IFNAME": "ib0", "GLOO_SOCKET_IFNAME": "ib0"}
    assert interface_environment(None, "127.0.0.1") == {"GLOO_SOCKET_IFNAME": "lo"}
    assert interface_environment(None, "10.0.0.1") == {}


def test_a_closed_door_is_told_from_an_open_one() -> None:
    door = Door("127.0.0.1")
    assert knock("127.0.0.1", door.port) == ""
    assert knock("127.0.0.1", door.port) == ""
    closed = socket.create_server(("127.0.0.1", 0))
    port = closed.getsockname()[1]
    closed.close()
    assert "ConnectionRefusedError" in knock("127.0.0.1", port)
    door.close()


def test_a_node_that_ends_two_gangs_is_avoided_also_under_another_name_of_ray() -> None:
    faults = NodeFaults(limit=2)
    faults.see({"id-1": "host-a", "id-2": "host-b"})
    assert not faults.blame("id-1")
    faults.see({"id-3": "host-a", "id-2": "host-b"})  # host-a was started again
    assert faults.blame("id-3")
    assert faults.avoided({"id-4": "host-a", "id-2": "host-b"}) == {"id-4": "it ended 2 gangs"}
    faults.leave("id-2", "it is drained")
    assert faults.avoided({"id-4": "host-a", "id-2": "host-b"}).keys() == {"id-4", "id-2"}
    faults.readmit()
    assert faults.avoided({"id-4": "host-a", "id-2": "host-b"}) == {}


def test_a_broken_card_is_the_nodes_fault() -> None:
    def raised(message: str) -> Failure:
        return Failure(FailureClass.error, "AcceleratorError", message, "", "")

    assert is_hardware(raised("CUDA error: uncorrectable ECC error encountered"))
    assert not is_hardware(raised("CUDA error: device-side assert triggered"))


def test_ranks_of_a_machine_that_goes_away_are_asked_once_and_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    title = f"rank-{uuid.uuid4().hex}"  # other tests' ranks are on this machine too
    monkeypatch.setattr(leave, "TITLE", title)
    saves = "trap 'sleep 0.3; exit 0' TERM; while :; do sleep 0.05; done"
    stays = "trap '' TERM; while :; do sleep 0.05; done"
    with subprocess.Popen([title, "-c", saves], executable="/bin/sh") as rank:
        time.sleep(0.2)  # until it has set its trap
        assert rank.pid in leave.rank_processes()
        begun = time.monotonic()
        assert leave.main(["--seconds", "20"]) == 0
        assert time.monotonic() - begun >= 0.3
    with subprocess.Popen([title, "-c", stays], executable="/bin/sh") as rank:
        time.sleep(0.2)
        assert leave.main(["--seconds", "0.5"]) == 1
        rank.kill()
