"""Start a cluster, after checking that it can be started:

    python -m infra.launch kuberay node --image IMAGE
    python -m infra.launch gcp hero --image IMAGE --project PROJECT --region us-central1 --zone us-central1-a

Without --apply it checks, and prints the definition and the command. Whatever is missing is one line with the way out.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from infra.clusters import CLUSTERS
from infra.gcp import autoscaler
from infra.kuberay import raycluster
from infra.render import ray_version, to_yaml
from infra.validate import problems_of_autoscaler, problems_of_raycluster

TOKEN = Path.home() / ".ray" / "auth_token"


def definition_of(options: argparse.Namespace) -> dict[str, Any]:
    """The definition that the options ask for."""
    cluster = CLUSTERS[options.cluster]
    if options.place == "kuberay":
        return raycluster(cluster, options.image, ray_version())
    return autoscaler(cluster, options.image, options.project, options.region, options.zone)


def command_of(options: argparse.Namespace, file: str) -> list[str]:
    """What starts the cluster from a file that holds its definition."""
    if options.place == "kuberay":
        return ["kubectl", "apply", "--namespace", options.namespace, "--filename", file]
    # The Ray of this environment: it must be the cluster's version.
    return [str(Path(sys.executable).with_name("ray")), "up", "--yes", file]


def obstacles(
    options: argparse.Namespace,
    definition: dict[str, Any],
    which: Callable[[str], str | None] = shutil.which,
    token: Path = TOKEN,
) -> list[str]:
    """Why the cluster cannot be started from here, one line each."""
    check = problems_of_raycluster if options.place == "kuberay" else problems_of_autoscaler
    found = check(definition)
    if "/" not in options.image:
        found.append(
            f"--image {options.image} names no registry, and nodes could not pull it: "
            "build infra/Dockerfile, push it, and give the full name"
        )
    tool = command_of(options, "")[0]
    if which(tool) is None:
        found.append(f"{tool} is not installed on this machine")
    if options.place == "gcp":
        if not token.is_file():
            found.append(
                f"there is no token at {token}, and every node and client needs the same one: "
                "ray get-auth-token --generate"
            )
        if options.project is None:
            found.append("--project is missing: the id of the Google Cloud project that pays")
    return found


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(prog="python -m infra.launch", description="check and start a Ray cluster")
    parser.add_argument("place", choices=["kuberay", "gcp"])
    parser.add_argument("cluster", choices=sorted(CLUSTERS))
    parser.add_argument("--image", required=True, help="built from infra/Dockerfile, where the nodes can pull it")
    parser.add_argument("--namespace", default="marin", help="of Kubernetes")
    parser.add_argument("--project", help="of Google Cloud")
    parser.add_argument("--region", default="us-central1")
    parser.add_argument("--zone", default="us-central1-a")
    parser.add_argument("--apply", action="store_true", help="start it; without this nothing is changed")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Check, print, and with --apply start. Exit 1 when something stands in the way."""
    options = parse(arguments)
    definition = definition_of(options)
    found = obstacles(options, definition)
    for line in found:
        print(f"infra.launch: {line}", file=sys.stderr)
    if found:
        return 1
    text = to_yaml(definition, f"the scale {options.cluster} and infra/clusters.py")
    if not options.apply:
        print(text)
        print(f"# would run: {' '.join(command_of(options, 'FILE'))}; add --apply to do it")
        return 0
    # Kept: `ray down` and `kubectl delete` want the same file again.
    file = Path(tempfile.gettempdir()) / f"marin-{options.cluster}.{options.place}.yaml"
    file.write_text(text)
    print(f"definition: {file}")
    return subprocess.run(command_of(options, str(file)), check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
