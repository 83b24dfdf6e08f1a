"""Whether the installed packages are the ones that the project asks for, and agree with each other."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from importlib import metadata

from packaging.requirements import Requirement

from marin.operate.findings import Finding, Level

PROJECT = "marin"
OLDEST_PYTHON = (3, 11)

# Modules that more than one distribution offers; two at once overwrite each other's files.
CONTESTED = ("fasttext",)

REINSTALL = "install again from the constraints file (make clean, then make install)"


def installed_version(name: str) -> str | None:
    """The version of an installed distribution, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def check_python(version: tuple[int, ...] = tuple(sys.version_info[:3])) -> Finding:
    """The interpreter is new enough."""
    text = ".".join(map(str, version))
    if version[:2] < OLDEST_PYTHON:
        return Finding("python", Level.fail, text, "use Python 3.11 or later: make clean, then make PYTHON=python3.11")
    return Finding("python", Level.ok, text)


def check_requirements(
    requirements: Iterable[str], version_of: Callable[[str], str | None] = installed_version
) -> list[Finding]:
    """One finding for each requirement that does not hold, or one for all of them when all do."""
    findings = []
    held = 0
    for line in requirements:
        wanted = Requirement(line)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        version = version_of(wanted.name)
        if version is None:
            findings.append(Finding("packages", Level.fail, f"{wanted.name} is not installed", REINSTALL))
        elif not wanted.specifier.contains(version, prereleases=True):
            detail = f"{wanted.name} is {version}, and {PROJECT} needs {wanted.specifier}"
            findings.append(Finding("packages", Level.fail, detail, REINSTALL))
        else:
            held += 1
    return findings or [Finding("packages", Level.ok, f"{held} requirements hold")]


def check_couplings(version_of: Callable[[str], str | None] = installed_version) -> list[Finding]:
    """The versions that must agree with each other: fsspec and s3fs are released as a pair."""
    fsspec, s3fs = version_of("fsspec"), version_of("s3fs")
    if fsspec is None or s3fs is None or fsspec == s3fs:
        return []
    detail = f"fsspec is {fsspec} and s3fs {s3fs}; they only work as a pair of the same version"
    return [Finding("packages", Level.fail, detail, REINSTALL)]


def check_contested(providers: dict[str, list[str]]) -> list[Finding]:
    """At most one distribution offers each contested module."""
    findings = []
    for module in CONTESTED:
        names = sorted(set(providers.get(module, [])))
        if len(names) > 1:
            detail = f"the module {module} is installed by {' and '.join(names)}, over each other"
            findings.append(Finding("packages", Level.fail, detail, REINSTALL))
    return findings


def module_providers() -> dict[str, list[str]]:
    """Distributions by the contested top-level modules that they install."""
    providers: dict[str, list[str]] = defaultdict(list)
    for distribution in metadata.distributions():
        for module in CONTESTED:
            # Only the names of distributions that could: reading every file list takes a second.
            name = distribution.metadata["Name"] or ""
            if name.lower().startswith(module) and _installs(distribution, module):
                providers[module].append(name)
    return dict(providers)


def _installs(distribution: metadata.Distribution, module: str) -> bool:
    return any(file.parts[0] in (module, f"{module}.py") for file in distribution.files or ())


def check_packages() -> list[Finding]:
    """Everything about the installation."""
    requirements = metadata.requires(PROJECT) if installed_version(PROJECT) is not None else None
    if requirements is None:
        own = [
            Finding(
                "packages",
                Level.warn,
                f"{PROJECT} runs from a folder and is not installed, so its requirements cannot be looked up",
                "make install",
            )
        ]
    else:
        own = check_requirements(requirements)
    return [check_python(), *own, *check_couplings(), *check_contested(module_providers())]
