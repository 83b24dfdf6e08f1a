"""A KubeRay RayCluster (ray.io/v1, KubeRay 1.6 or later) from a cluster's fleets."""

from __future__ import annotations

from typing import Any

from infra.clusters import Cluster
from infra.machines import machine_for, node_shape
from marin.execution.fleet import Fleet

IDLE_SECONDS = 600
GRACE_SECONDS = 60


def raycluster(cluster: Cluster, image: str, ray_version: str) -> dict[str, Any]:
    """The RayCluster as a JSON-like value. Worker groups start empty; the autoscaler fills them on demand."""
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": f"marin-{cluster.name}", "labels": {"app.kubernetes.io/name": "marin"}},
        "spec": {
            "rayVersion": ray_version,
            # KubeRay makes a secret with a random token and hands it to every pod of the cluster.
            "authOptions": {"mode": "token"},
            "enableInTreeAutoscaling": True,
            "autoscalerOptions": {"idleTimeoutSeconds": IDLE_SECONDS, "upscalingMode": "Default"},
            "headGroupSpec": {
                # Steps run on workers: a busy head loses the cluster.
                "rayStartParams": {"num-cpus": "0", "dashboard-host": "0.0.0.0"},
                "template": {"metadata": {"labels": {"marin/group": "head"}}, "spec": _head_pod(image)},
            },
            "workerGroupSpecs": [_group(name, fleet, image) for name, fleet in cluster.groups()],
        },
    }


def _group(name: str, fleet: Fleet, image: str) -> dict[str, Any]:
    return {
        "groupName": name,
        "replicas": 0,
        "minReplicas": 0,
        "maxReplicas": fleet.nodes + fleet.spares,
        "numOfHosts": 1,
        "rayStartParams": {},
        "template": {"metadata": {"labels": {"marin/group": name}}, "spec": _worker_pod(fleet, image)},
    }


def _head_pod(image: str) -> dict[str, Any]:
    ports = [("gcs", 6379), ("dashboard", 8265), ("client", 10001)]
    container = {
        **_container("ray-head", image, {"cpu": "4", "memory": "16G"}),
        "ports": [{"name": name, "containerPort": port} for name, port in ports],
    }
    return _pod(container, shared_gb=4)


def _worker_pod(fleet: Fleet, image: str) -> dict[str, Any]:
    shape = node_shape(fleet)
    machine = machine_for(fleet)
    resources = {"cpu": str(shape.cpus), "memory": f"{shape.memory_gb}G"}
    selector = {"node.kubernetes.io/instance-type": machine.type}
    tolerations: list[dict[str, str]] = []
    if shape.gpus:
        resources["nvidia.com/gpu"] = str(shape.gpus)
        tolerations.append({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"})
    if machine.cloud_accelerator is not None:
        selector["cloud.google.com/gke-accelerator"] = machine.cloud_accelerator
    if machine.arm:
        tolerations.append({"key": "kubernetes.io/arch", "operator": "Equal", "value": "arm64", "effect": "NoSchedule"})
    if fleet.spot:
        selector["cloud.google.com/gke-spot"] = "true"
        tolerations.append(
            {"key": "cloud.google.com/gke-spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
        )
    container = _container("ray-worker", image, resources)
    # Before Ray gets its SIGTERM and ends all at once, ranks may save.
    seconds = GRACE_SECONDS - 10
    leave = ["python", "-m", "marin.execution.cluster.leave", "--seconds", str(seconds)]
    container["lifecycle"] = {"preStop": {"exec": {"command": leave}}}
    pod = _pod(container, shared_gb=max(1, shape.memory_gb // 4))
    pod["nodeSelector"] = selector
    if tolerations:
        pod["tolerations"] = tolerations
    return pod


def _container(name: str, image: str, resources: dict[str, str]) -> dict[str, Any]:
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        # Requests equal limits, so that the kubelet evicts everything else first.
        "resources": {"requests": dict(resources), "limits": dict(resources)},
        "securityContext": {"allowPrivilegeEscalation": False, "runAsNonRoot": True, "runAsUser": 1000},
        "volumeMounts": [
            {"name": "shared-memory", "mountPath": "/dev/shm"},
            {"name": "ray-session", "mountPath": "/tmp/ray"},
        ],
    }


def _pod(container: dict[str, Any], shared_gb: int) -> dict[str, Any]:
    return {
        # Bound to a cloud identity that may read and write the prefix's bucket.
        "serviceAccountName": "marin",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": {"fsGroup": 1000},
        "containers": [container],
        "volumes": [
            {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": f"{shared_gb}G"}},
            {"name": "ray-session", "emptyDir": {}},
        ],
    }
