"""What an installation holds, and how `make` and the install script bring it about."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from marin.data.crawl.site.packages import PACKAGES

ROOT = Path(__file__).resolve().parents[2]


def project() -> dict[str, list[str]]:
    """Requirements by extra; the project's own are under the empty name."""
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {"": table["dependencies"], **table["optional-dependencies"]}


def constraints() -> dict[str, str]:
    """Exact versions by canonical name."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    pairs = [line.split("==") for line in lines]
    assert all(len(pair) == 2 for pair in pairs), "constraints.txt holds exact versions only"
    return {canonicalize_name(name): version for name, version in pairs}


def test_the_constraints_satisfy_every_requirement_of_the_project() -> None:
    exact = constraints()
    for extra, lines in project().items():
        for requirement in map(Requirement, lines):
            if requirement.name == "marin":
                continue
            version = exact.get(canonicalize_name(requirement.name))
            assert version is not None, f"{requirement} of extra {extra!r} has no exact version: make constraints"
            assert requirement.specifier.contains(version), f"{requirement} against {version}: make constraints"


def test_the_constraints_fit_every_index() -> None:
    assert constraints()["torch"] == "2.13.0"
    assert not any(Version(version).local for version in constraints().values())


def test_the_storage_clients_agree_with_each_other() -> None:
    exact = constraints()
    assert exact["fsspec"] == exact["s3fs"]


def test_exactly_one_package_installs_the_module_fasttext() -> None:
    assert "fasttext-predict" in constraints()
    assert "fasttext-numpy2-wheel" not in constraints()
    owners = {
        distribution.metadata["Name"]
        for distribution in metadata.distributions()
        if (distribution.metadata["Name"] or "").lower().startswith("fasttext")
    }
    if "marin" not in {distribution.metadata["Name"] for distribution in metadata.distributions()}:
        pytest.skip("the project is not installed here, so its environment is somebody else's")
    assert owners == {"fasttext-predict"}


def test_what_the_url_blocklist_and_the_word_splitter_need_is_a_direct_dependency() -> None:
    names = {canonicalize_name(Requirement(line).name) for line in project()[""]}
    extra = {
        canonicalize_name(requirement.name)
        for requirement in map(Requirement, metadata.requires("datatrove") or [])
        if requirement.marker is not None and requirement.marker.evaluate({"extra": "processing"})
    }
    assert extra - names == {"fasttext-numpy2-wheel"}


def fake_interpreter(folder: Path, *, uv_works: bool) -> tuple[Path, Path]:
    """A `python` that writes its arguments to a log and fails for uv where told to."""
    log = folder / "log"
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    refusal = "" if uv_works else 'case "$*" in "-m uv"*) exit 3;; esac\n'
    python.write_text(f'#!/bin/sh\necho "$@" >>"{log}"\n{refusal}exit 0\n')
    python.chmod(0o755)
    return python, log


def install(python: Path, target: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the install script."""
    clean = {name: value for name, value in os.environ.items() if name != "PIP_FIND_LINKS"}
    return subprocess.run(
        ["sh", "infra/install.sh", str(python), target],
        cwd=ROOT,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_uv_installs_from_the_constraints_and_pip_is_not_asked_again(tmp_path: Path) -> None:
    python, log = fake_interpreter(tmp_path, uv_works=True)
    assert install(python, ".[test]").returncode == 0
    bootstrap, by_uv = log.read_text().splitlines()
    assert bootstrap.startswith("-m pip install")
    assert bootstrap.endswith(" uv")
    assert "--constraint constraints.txt --editable .[test]" in by_uv
    assert "--find-links" not in by_uv


def test_find_links_are_used_where_the_variable_is_set(tmp_path: Path) -> None:
    python, log = fake_interpreter(tmp_path, uv_works=True)
    assert install(python, ".", PIP_FIND_LINKS="/wheels/a /wheels/b").returncode == 0
    assert "--find-links /wheels/a --find-links /wheels/b" in log.read_text()


def test_pip_takes_over_when_uv_fails(tmp_path: Path) -> None:
    python, log = fake_interpreter(tmp_path, uv_works=False)
    done = install(python, ".")
    assert done.returncode == 0
    assert "plain pip" in done.stderr
    last = log.read_text().splitlines()[-1]
    assert last.startswith("-m pip install")
    assert last.endswith("--constraint constraints.txt --editable .")


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_installs_once_and_the_larger_installation_covers_the_smaller(tmp_path: Path) -> None:
    _, log = fake_interpreter(tmp_path / "venv", uv_works=True)

    def make(goal: str) -> None:
        # The flags of an outer make (the one that runs these tests) are not ours.
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        command = ["make", goal, f"VENV={tmp_path / 'venv'}"]
        subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)

    make("install")
    once = log.read_text()
    assert once.count("--editable .\n") == 1
    make("install")
    assert log.read_text() == once
    make("install-dev")
    twice = log.read_text()
    assert twice.count("--editable .[test,dev]\n") == 1
    for goal in ("install", "install-test", "install-dev"):
        make(goal)
    assert log.read_text() == twice


def test_the_ci_script_is_executable_and_parses() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", str(script)], check=True)


def test_every_package_of_the_embedded_crawl_is_a_direct_dependency() -> None:
    names = {canonicalize_name(Requirement(line).name) for line in project()[""]}
    assert {canonicalize_name(name) for name in PACKAGES} <= names
