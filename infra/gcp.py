"""A Ray autoscaler definition (`ray up`) on Google Cloud virtual machines from a cluster's fleets."""

from __future__ import annotations

from typing import Any

from infra.clusters import Cluster
from infra.machines import Machine, machine_for, node_shape
from marin.execution.fleet import Fleet

IDLE_MINUTES = 10
HEAD = Machine("n2-standard-8", 8, 32)

# Boot images: Docker and, for GPU machines, the driver.
IMAGE_FAMILY = {
    "cpu": "projects/deeplearning-platform-release/global/images/family/common-cpu",
    "gpu": "projects/deeplearning-platform-release/global/images/family/common-cu129",
}


def autoscaler(
    cluster: Cluster, image: str, project: str | None = None, region: str = "us-central1", zone: str = "us-central1-a"
) -> dict[str, Any]:
    """The definition as a JSON-like value; `project` None is filled in by the launcher."""
    nodes: dict[str, Any] = {
        "head": {"resources": {"CPU": 0}, "node_config": _machine(HEAD, False, project), "max_workers": 0}
    }
    for name, fleet in cluster.groups():
        nodes[name] = _group(fleet, project)
    start = "ulimit -n 65536; RAY_AUTH_MODE=token ray start"
    return {
        "cluster_name": f"marin-{cluster.name}",
        "max_workers": sum(fleet.nodes + fleet.spares for _, fleet in cluster.groups()),
        "upscaling_speed": 10.0,
        "idle_timeout_minutes": IDLE_MINUTES,
        "provider": {"type": "gcp", "region": region, "availability_zone": zone, "project_id": project},
        "auth": {"ssh_user": "ubuntu"},
        "docker": {
            "image": image,
            "container_name": "marin",
            "pull_before_run": True,
            "run_options": ["--ulimit nofile=65536:65536", "--network=host"],
        },
        # Every node and every client of a cluster needs the same token.
        "file_mounts": {"~/.ray/auth_token": "~/.ray/auth_token"},
        "head_node_type": "head",
        "available_node_types": nodes,
        "initialization_commands": [],
        "setup_commands": [],
        "head_start_ray_commands": [
            "ray stop",
            f"{start} --head --port=6379 --num-cpus=0 --autoscaling-config=~/ray_bootstrap_config.yaml",
        ],
        "worker_start_ray_commands": ["ray stop", f"{start} --address=$RAY_HEAD_IP:6379"],
    }


def _group(fleet: Fleet, project: str | None) -> dict[str, Any]:
    shape = node_shape(fleet)
    resources = {"CPU": shape.cpus}
    if shape.gpus:
        resources["GPU"] = shape.gpus
    return {
        "min_workers": 0,
        "max_workers": fleet.nodes + fleet.spares,
        "resources": resources,
        "node_config": _machine(machine_for(fleet), fleet.spot, project),
    }


def _machine(machine: Machine, spot: bool, project: str | None) -> dict[str, Any]:
    scheduling: dict[str, Any] = {}
    if machine.gpus:
        # GPU machines cannot move to another host.
        scheduling["onHostMaintenance"] = "TERMINATE"
    if spot:
        scheduling |= {"provisioningModel": "SPOT", "instanceTerminationAction": "DELETE"}
    config: dict[str, Any] = {
        "machineType": machine.type,
        "disks": [
            {
                "boot": True,
                "autoDelete": True,
                "type": "PERSISTENT",
                "initializeParams": {
                    "diskSizeGb": 200,
                    "sourceImage": IMAGE_FAMILY["gpu" if machine.gpus else "cpu"],
                },
            }
        ],
    }
    if project is not None:
        # The identity that may read and write the prefix's bucket.
        config["serviceAccounts"] = [
            {
                "email": f"marin@{project}.iam.gserviceaccount.com",
                "scopes": ["https://www.googleapis.com/auth/cloud-platform"],
            }
        ]
    if scheduling:
        config["scheduling"] = scheduling
    return config
