"""Check a cluster definition against what will read it, without a cluster and without a network.

- RayCluster: the documented shape of the ray.io/v1 resource (schemas/raycluster-v1.json), and each pod template
  against Kubernetes' own schema where the package `kubernetes-validate` is installed;
- autoscaler definition: the schema that Ray ships and applies itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib import util
from pathlib import Path
from typing import Any

import jsonschema

RAYCLUSTER_SCHEMA = Path(__file__).parent / "schemas" / "raycluster-v1.json"


def problems_of_raycluster(definition: Any) -> list[str]:
    """What is wrong with a RayCluster, one line each; empty when it is well-formed."""
    found = _violations(definition, json.loads(RAYCLUSTER_SCHEMA.read_text()))
    if found:
        return found
    for where, template in _pod_templates(definition["spec"]):
        found += [f"{where}: {problem}" for problem in problems_of_pod(template)]
    for index, group in enumerate(definition["spec"].get("workerGroupSpecs", [])):
        if not group["minReplicas"] <= group.get("replicas", group["minReplicas"]) <= group["maxReplicas"]:
            found.append(f"spec.workerGroupSpecs[{index}]: replicas must lie between minReplicas and maxReplicas")
    return found


def problems_of_pod(template: dict[str, Any]) -> list[str]:
    """What Kubernetes would say of a pod template."""
    if util.find_spec("kubernetes_validate") is None:
        return []
    import kubernetes_validate

    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "template", **template.get("metadata", {})},
        "spec": template["spec"],
    }
    try:
        kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{'.'.join(map(str, error.path))}: {error.message}"]
    return []


def problems_of_autoscaler(definition: Any) -> list[str]:
    """What is wrong with an autoscaler definition, by the schema in the installed Ray."""
    spec = util.find_spec("ray")
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("Ray is not installed, so its schema cannot be read; make install")
    schema = Path(next(iter(spec.submodule_search_locations))) / "autoscaler" / "ray-schema.json"
    found = _violations(definition, json.loads(schema.read_text()))
    if not found and definition.get("head_node_type") not in definition.get("available_node_types", {}):
        found.append(f"head_node_type {definition.get('head_node_type')!r} is none of available_node_types")
    return found


def _violations(definition: Any, schema: dict[str, Any]) -> list[str]:
    kind = jsonschema.validators.validator_for(schema)
    errors = sorted(kind(schema).iter_errors(definition), key=lambda error: list(map(str, error.absolute_path)))
    return [f"{'.'.join(map(str, error.absolute_path)) or 'top level'}: {error.message}" for error in errors]


def _pod_templates(spec: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "spec.headGroupSpec.template", spec["headGroupSpec"]["template"]
    for index, group in enumerate(spec.get("workerGroupSpecs", [])):
        yield f"spec.workerGroupSpecs[{index}].template", group["template"]
