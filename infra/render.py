"""Write the cluster definitions of infra/clusters.py as YAML files:

python -m infra.render            all of them, into infra/rendered/
python -m infra.render --check    say which files there are out of date (exit 1)
"""

from __future__ import annotations

import argparse
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml

from infra.clusters import CLUSTERS, Cluster
from infra.gcp import autoscaler
from infra.kuberay import raycluster

RENDERED = Path(__file__).parent / "rendered"

# Built from infra/Dockerfile and pushed where the cluster can pull it; the launcher's --image names yours.
DEFAULT_IMAGE = "marin:0.1.0"


def ray_version() -> str:
    """The Ray that the project runs on: the cluster's must be the same."""
    return metadata.version("ray")


def rendered(cluster: Cluster, image: str = DEFAULT_IMAGE) -> dict[str, dict[str, Any]]:
    """Every definition of a cluster, by file name."""
    return {
        f"{cluster.name}.kuberay.yaml": raycluster(cluster, image, ray_version()),
        f"{cluster.name}.gcp.yaml": autoscaler(cluster, image),
    }


def to_yaml(definition: dict[str, Any], origin: str) -> str:
    """The definition as YAML text, keys in the order in which people read them."""
    head = f"# Rendered from {origin} by `python -m infra.render`; change those, not this file.\n"
    return head + yaml.dump(definition, Dumper=_Plain, sort_keys=False, width=1000)


class _Plain(yaml.SafeDumper):
    """Writes equal values out instead of pointing at each other."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def files() -> dict[Path, str]:
    """The text of every file that belongs into infra/rendered/."""
    return {
        RENDERED / name: to_yaml(definition, f"the scale {cluster.name} and infra/clusters.py")
        for cluster in CLUSTERS.values()
        for name, definition in rendered(cluster).items()
    }


def main(arguments: list[str] | None = None) -> int:
    """Write or check the files."""
    parser = argparse.ArgumentParser(prog="python -m infra.render", description="render the cluster definitions")
    parser.add_argument("--check", action="store_true", help="only say which files are out of date")
    check = parser.parse_args(arguments).check
    stale = {path: text for path, text in files().items() if not path.exists() or path.read_text() != text}
    for path, text in stale.items():
        print(f"{'out of date' if check else 'written'}: {path}")
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
