"""The rendered cluster definitions: valid for what reads them, and as large as their fleets."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra import launch, render
from infra.clusters import CLUSTERS
from infra.gcp import autoscaler
from infra.kuberay import raycluster
from infra.machines import MACHINES, machine_for, node_shape
from infra.validate import problems_of_autoscaler, problems_of_raycluster
from marin.execution.fleet import Fleet

NAMES = sorted(CLUSTERS)


def committed(name: str) -> Any:
    return yaml.safe_load((render.RENDERED / name).read_text())


def test_the_committed_files_are_what_the_fleets_render_to() -> None:
    for path, text in render.files().items():
        assert path.read_text() == text, f"{path} is out of date: python -m infra.render"
    assert sorted(render.RENDERED.iterdir()) == sorted(render.files())


@pytest.mark.parametrize("name", NAMES)
def test_a_committed_raycluster_has_the_documented_shape_and_valid_pods(name: str) -> None:
    assert problems_of_raycluster(committed(f"{name}.kuberay.yaml")) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_committed_autoscaler_definition_passes_rays_own_schema(name: str) -> None:
    assert problems_of_autoscaler(committed(f"{name}.gcp.yaml")) == []


@pytest.mark.parametrize("name", NAMES)
def test_both_definitions_offer_what_the_fleets_ask_for(name: str) -> None:
    kubernetes = {group["groupName"]: group for group in committed(f"{name}.kuberay.yaml")["spec"]["workerGroupSpecs"]}
    machines = committed(f"{name}.gcp.yaml")["available_node_types"]
    for group, fleet in CLUSTERS[name].groups():
        limits = kubernetes[group]["template"]["spec"]["containers"][0]["resources"]["limits"]
        gpus = kubernetes[group]["maxReplicas"] * int(limits.get("nvidia.com/gpu", 0))
        cpus = kubernetes[group]["maxReplicas"] * int(limits["cpu"])
        assert gpus == fleet.workers * fleet.gpus_per_worker
        assert cpus >= fleet.workers * fleet.cpus_per_worker
        offered = machines[group]["resources"]
        assert machines[group]["max_workers"] * offered.get("GPU", 0) == gpus
        assert machines[group]["max_workers"] * offered["CPU"] == cpus


def test_the_hero_has_704_gpus_on_176_nodes() -> None:
    fleet = CLUSTERS["hero"].training
    assert (fleet.workers, fleet.nodes, fleet.workers_per_node) == (704, 176, 4)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("spec", "workerGroupSpecs", 0, "replicas"), "two", "'two' is not of type 'integer'"),
        (("spec", "workerGroupSpecs", 0, "maxReplica"), 3, "maxReplica"),
        (("spec", "workerGroupSpecs", 0, "replicas"), 100_000, "between minReplicas and maxReplicas"),
        (("spec", "headGroupSpec", "rayStartParams", "num-cpus"), 0, "0 is not of type 'string'"),
        (("spec", "authOptions", "mode"), "tokens", "tokens"),
        (("metadata", "name"), "Marin_hero", "does not match"),
        (("spec", "headGroupSpec", "template", "spec", "containers", 0, "ports", 0, "containerPort"), "6379", "6379"),
        (("spec", "headGroupSpec", "template", "spec", "containers", 0, "img"), "x", "img"),
    ],
)
def test_a_mistake_in_a_raycluster_is_found_and_named(path: tuple[Any, ...], value: Any, expected: str) -> None:
    definition = copy.deepcopy(raycluster(CLUSTERS["node"], "marin", "2.60.0"))
    _set(definition, path, value)
    assert any(expected in problem for problem in problems_of_raycluster(definition))


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("available_node_types", "training", "resources", "GPU"), "8", "'8' is not of type 'integer'"),
        (("max_worker",), 3, "max_worker"),
        (("head_node_type",), "heads", "heads"),
    ],
)
def test_a_mistake_in_an_autoscaler_definition_is_found_and_named(
    path: tuple[Any, ...], value: Any, expected: str
) -> None:
    definition = copy.deepcopy(autoscaler(CLUSTERS["node"], "marin"))
    _set(definition, path, value)
    assert any(expected in problem for problem in problems_of_autoscaler(definition))


def test_spot_fleets_run_on_spot_machines_and_others_do_not() -> None:
    groups = autoscaler(CLUSTERS["node"], "marin")["available_node_types"]
    assert groups["data"]["node_config"]["scheduling"]["provisioningModel"] == "SPOT"
    assert "provisioningModel" not in groups["training"]["node_config"]["scheduling"]
    pods = {
        group["groupName"]: group for group in raycluster(CLUSTERS["node"], "m", "2.60.0")["spec"]["workerGroupSpecs"]
    }
    assert "cloud.google.com/gke-spot" in pods["data"]["template"]["spec"]["nodeSelector"]
    assert "cloud.google.com/gke-spot" not in pods["training"]["template"]["spec"]["nodeSelector"]


def test_a_fleet_gets_the_smallest_machine_that_holds_its_node() -> None:
    assert machine_for(Fleet(workers=2, cpus_per_worker=4, memory_gb_per_node=16)).type == "n2-standard-8"
    assert machine_for(Fleet(workers=2, cpus_per_worker=8, memory_gb_per_node=16)).type == "n2-standard-16"
    assert machine_for(Fleet(workers=2, cpus_per_worker=1, memory_gb_per_node=200)).type == "n2-standard-64"
    assert {machine_for(fleet).type for cluster in CLUSTERS.values() for _, fleet in cluster.groups()} <= {
        machine.type for machine in MACHINES
    }


@pytest.mark.parametrize(
    ("fleet", "expected"),
    [
        (Fleet(gpus_per_worker=1), "fleet.accelerator"),
        (Fleet(accelerator="H100"), "fleet.accelerator"),
        (Fleet(workers=3, workers_per_node=3, gpus_per_worker=0.5, accelerator="H100"), "whole number of GPUs"),
        (Fleet(gpus_per_worker=1, accelerator="K80"), "'K80' is none of"),
        (Fleet(cpus_per_worker=500), "n2-standard-64"),
        (Fleet(workers=16, workers_per_node=16, gpus_per_worker=1, accelerator="H100"), "a3-highgpu-8g"),
    ],
)
def test_a_fleet_that_no_machine_holds_is_refused_with_the_reason(fleet: Fleet, expected: str) -> None:
    with pytest.raises(ValueError) as caught:
        machine_for(fleet)
    assert expected in str(caught.value)


def test_fractions_of_a_cpu_are_rounded_up_for_a_node() -> None:
    assert node_shape(Fleet(workers=3, workers_per_node=3, cpus_per_worker=0.5, memory_gb_per_node=1.5)).cpus == 2
    assert node_shape(Fleet(memory_gb_per_node=1.5)).memory_gb == 2


def test_the_launcher_names_everything_that_is_in_the_way(tmp_path: Path) -> None:
    options = launch.parse(["gcp", "node", "--image", "marin:0.1.0"])
    found = launch.obstacles(options, launch.definition_of(options), which=lambda _: None, token=tmp_path / "none")
    text = "\n".join(found)
    assert len(found) == 4
    for word in ("--image", "ray is not installed", "get-auth-token", "--project"):
        assert word in text


def test_the_launcher_has_nothing_against_a_complete_request(tmp_path: Path) -> None:
    token = tmp_path / "auth_token"
    token.write_text("t")
    for words in (["kuberay", "hero"], ["gcp", "hero", "--project", "p"]):
        options = launch.parse([*words, "--image", "registry.invalid/marin:0.1.0"])
        definition = launch.definition_of(options)
        assert launch.obstacles(options, definition, which=lambda tool: tool, token=token) == []
    assert definition["provider"]["project_id"] == "p"
    accounts = definition["available_node_types"]["training"]["node_config"]["serviceAccounts"]
    assert accounts[0]["email"] == "marin@p.iam.gserviceaccount.com"


def test_without_apply_the_launcher_only_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch.subprocess, "run", lambda *_, **__: pytest.fail("the launcher ran something"))
    monkeypatch.setattr(launch, "obstacles", lambda *_: [])
    assert launch.main(["kuberay", "node", "--image", "registry.invalid/marin:0.1.0"]) == 0
    printed = capsys.readouterr().out
    assert yaml.safe_load(printed)["metadata"]["name"] == "marin-node"
    assert "--apply" in printed


def test_the_image_installs_the_committed_constraints() -> None:
    text = (Path(launch.__file__).parent / "Dockerfile").read_text()
    assert "--constraint constraints.txt" in text
    assert "USER marin" in text


def _set(value: Any, path: tuple[Any, ...], new: Any) -> None:
    for part in path[:-1]:
        value = value[part]
    value[path[-1]] = new
