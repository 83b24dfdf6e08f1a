"""Which code reaches the nodes of a cluster that is joined."""

from __future__ import annotations

import zipfile
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from marin.execution import StepError
from marin.execution.cluster import shipping
from marin.execution.cluster.shipping import experiment_folder, pack, source_root

KEPT = (
    "pyproject.toml",
    "marin/__init__.py",
    "marin/data/blocklist.txt",
    "marin/optim/build/plan.py",
    "experiments/exp.py",
    "experiments/sibling.py",
)
LEFT = (
    ".git/objects/aa/bb",
    ".gitignore/x",
    ".venv/bin/python",
    "env/pyvenv.cfg",
    "env/lib/big.so",
    "artifacts/_steps/documents.clean-0123456789.json",
    "artifacts/documents/clean/part.parquet",
    "half/_runs/x/beat",
    "marin/__pycache__/x.cpython-311.pyc",
    "marin.egg-info/PKG-INFO",
    "build/lib/marin.py",
    ".mypy_cache/x.json",
    "scratch/prefix/part.bin",
)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source tree with everything that may lie in one."""
    root = tmp_path / "project"
    for name in (*KEPT, *LEFT):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    monkeypatch.setattr(shipping, "source_root", lambda: root)
    return root


def script(path: Path, name: str | None = None) -> ModuleType:
    """The main module of `python PATH`, or of `python -m NAME`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    module = ModuleType("__main__")
    module.__file__ = str(path)
    module.__spec__ = ModuleSpec(name, None) if name is not None else None
    return module


def names(archive: Path) -> set[str]:
    return set(zipfile.ZipFile(archive).namelist())


def test_code_is_sent_and_what_is_no_code_stays(tree: Path, tmp_path: Path) -> None:
    shipment = pack(tmp_path / "code.zip", script(tree / "experiments/exp.py"), [tree / "scratch/prefix"])
    assert shipment is not None
    assert names(shipment.archive) == set(KEPT)


def test_an_experiments_own_folder_is_on_the_path_of_workers(tree: Path, tmp_path: Path) -> None:
    inside = pack(tmp_path / "inside.zip", script(tree / "experiments/exp.py"))
    assert inside is not None
    assert inside.runtime_env() == {
        "working_dir": str(tmp_path / "inside.zip"),
        "env_vars": {"PYTHONPATH": "experiments"},
    }
    outside = pack(tmp_path / "outside.zip", script(tmp_path / "mine/exp.py"))
    assert outside is not None
    assert {"exp.py", *KEPT} <= names(outside.archive)
    assert outside.runtime_env() == {"working_dir": str(tmp_path / "outside.zip")}


def test_equal_trees_make_equal_packages(tree: Path, tmp_path: Path) -> None:
    one = pack(tmp_path / "one.zip", None)
    (tree / "marin/__init__.py").touch()
    (tree / "artifacts/_steps/documents.clean-1123456789.json").write_text("one more")
    other = pack(tmp_path / "other.zip", None)
    assert one is not None and other is not None
    assert one.archive.read_bytes() == other.archive.read_bytes()
    (tree / "marin/__init__.py").write_text("changed")
    changed = pack(tmp_path / "changed.zip", None)
    assert changed is not None
    assert changed.archive.read_bytes() != one.archive.read_bytes()


def test_a_name_that_project_and_experiment_both_have_is_refused_unless_the_files_are_equal(
    tree: Path, tmp_path: Path
) -> None:
    main = script(tmp_path / "mine/exp.py")
    (tmp_path / "mine/pyproject.toml").write_text("pyproject.toml")
    assert pack(tmp_path / "code.zip", main) is not None
    (tmp_path / "mine/pyproject.toml").write_text("another")
    with pytest.raises(
        StepError, match=r"both .*project/pyproject\.toml and .*mine/pyproject\.toml as pyproject\.toml"
    ):
        pack(tmp_path / "code.zip", main)


def test_too_large_a_tree_names_its_largest_folders(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "LIMIT_BYTES", 4_000_000)
    for folder, size in (("dumps/old", 3_000_000), ("dumps/new", 2_000_000), ("notes", 1_000)):
        (tree / folder).mkdir(parents=True)
        (tree / folder / "data.bin").write_bytes(bytes(size))
    with pytest.raises(StepError) as error:
        pack(tmp_path / "code.zip", None)
    assert "5.0 MB" in str(error.value)
    assert "dumps/old (3.0 MB), dumps/new (2.0 MB), notes (0.0 MB)" in str(error.value)


def test_somebodys_home_is_not_read_to_its_end(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "LIMIT_FILES", 3)
    with pytest.raises(StepError, match="has 4 files or more"):
        pack(tmp_path / "code.zip", None)


def test_the_folder_of_a_script_a_module_and_a_command_is_what_python_has_on_its_path(tmp_path: Path) -> None:
    import sys

    assert experiment_folder(script(tmp_path / "mine/exp.py")) == tmp_path / "mine"
    assert experiment_folder(script(tmp_path / "mine/pack/exp.py", "pack.exp")) == tmp_path / "mine"
    assert experiment_folder(script(tmp_path / "mine/pack/__main__.py", "pack.__main__")) == tmp_path / "mine"
    assert experiment_folder(ModuleType("__main__")) is None
    command = ModuleType("__main__")
    command.__file__, command.__spec__ = str(Path(sys.prefix) / "bin/marin"), None
    assert experiment_folder(command) is None


def test_an_installed_marin_and_an_installed_command_send_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "source_root", lambda: None)
    assert pack(tmp_path / "code.zip", ModuleType("__main__")) is None


def test_this_project_is_a_source_tree() -> None:
    root = source_root()
    assert root is not None
    assert (root / "marin/execution/cluster/shipping.py").is_file()
