"""The code that goes to the nodes of a cluster: the project's tree, and the folder of the experiment that runs.

A cluster that is joined by address has its own copy of the project at best, and then not this one with its edits. So
the driver packs what it runs from, once for each content, and Ray hands it to every worker as its working folder.
"""

from __future__ import annotations

import os
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import ModuleType

import marin
from marin.execution import layout
from marin.execution.failures import StepError

LIMIT_BYTES = 512 << 20
"""What Ray takes as one package."""
LIMIT_FILES = 20_000
"""More is no tree of code but somebody's home."""
NAMED_FOLDERS = 5
CACHES = frozenset({"__pycache__", "node_modules"})
BUILT = frozenset({"build", "dist"})
"""What builds leave at the top of a tree; further down the names are as good as any."""
SUFFIXES_LEFT_OUT = (".pyc", ".pyo", ".egg-info")
EPOCH = (1980, 1, 1, 0, 0, 0)
"""A date that every archive has, so that equal content is an equal package, which Ray uploads once."""


@dataclass(frozen=True)
class Shipment:
    """A packed tree: the archive, and the folders in it that belong on Python's path beside its root."""

    archive: Path
    python_path: tuple[str, ...]

    def runtime_env(self) -> dict[str, object]:
        """What `ray.init` is told. Workers start in the unpacked tree, so relative folders are found."""
        variables = {"env_vars": {"PYTHONPATH": os.pathsep.join(self.python_path)}} if self.python_path else {}
        return {"working_dir": str(self.archive), **variables}


def source_root() -> Path | None:
    """The project's root when marin runs from a source tree, None when it is an installed package."""
    root = Path(marin.__file__).resolve().parents[1]
    return root if (root / "pyproject.toml").is_file() else None


def experiment_folder(main: ModuleType | None) -> Path | None:
    """The folder from which the running program imports its own modules; None for what is installed or typed in."""
    file = getattr(main, "__file__", None)
    if file is None:
        return None
    path = Path(file).resolve()
    spec = getattr(main, "__spec__", None)  # of `python -m package.module`
    folder = path.parents[spec.name.count(".")] if spec is not None else path.parent
    installed = [Path(place).resolve() for place in (sys.prefix, sys.base_prefix)]
    return None if any(folder.is_relative_to(place) for place in installed) else folder


def pack(target: Path, main: ModuleType | None, without: Sequence[Path] = ()) -> Shipment | None:
    """Pack what this process runs from into the archive `target`; None when all of it is installed.

    `without` are folders that stay here, such as a local prefix.

    Raises:
        StepError: it is more than Ray takes, or two files claim one place.
    """
    root, folder = source_root(), experiment_folder(main)
    inside = root is not None and folder is not None and folder.is_relative_to(root)
    trees = [tree for tree in (root, None if inside else folder) if tree is not None]
    if not trees:
        return None
    files: dict[str, Path] = {}
    for tree in trees:
        for name, path in islice(chosen_files(tree, without), LIMIT_FILES + 1):
            if name in files and files[name].read_bytes() != path.read_bytes():
                raise StepError(
                    f"workers would get both {files[name]} and {path} as {name}: rename the one in the "
                    "experiment's folder, or keep the experiment inside the project"
                )
            files[name] = path
        _check_size(tree, files)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name, EPOCH), files[name].read_bytes(), zipfile.ZIP_DEFLATED)
    on_path = folder.relative_to(root).as_posix() if folder is not None and root is not None and inside else "."
    return Shipment(target, () if on_path == "." else (on_path,))


def chosen_files(tree: Path, without: Sequence[Path] = ()) -> Iterator[tuple[str, Path]]:
    """(name in the archive, file) of a tree without what is no source: version control, environments, caches, runs."""
    resolved = {path.resolve() for path in without}
    for place, folders, names in os.walk(tree):
        here = Path(place)
        built = BUILT if here == tree else frozenset()
        wanted = [name for name in folders if name not in built and here / name not in resolved]
        folders[:] = sorted(name for name in wanted if _is_source(here / name))
        for name in sorted(names):
            path = here / name
            if not name.endswith(SUFFIXES_LEFT_OUT) and path.is_file():
                yield path.relative_to(tree).as_posix(), path


def _is_source(folder: Path) -> bool:
    if folder.name.startswith(".") or folder.name in CACHES or folder.name.endswith(SUFFIXES_LEFT_OUT):
        return False
    if (folder / "pyvenv.cfg").exists():
        return False
    return not any((folder / mark).is_dir() for mark in (layout.RECORDS, layout.CLAIMS, layout.RUNS))


def _check_size(tree: Path, files: dict[str, Path]) -> None:
    sizes = {name: path.stat().st_size for name, path in files.items()}
    total = sum(sizes.values())
    if total <= LIMIT_BYTES and len(files) <= LIMIT_FILES:
        return
    weights: Counter[str] = Counter()
    for name, size in sizes.items():
        weights[name.rpartition("/")[0] or "."] += size
    largest = ", ".join(f"{folder} ({size / 1e6:.1f} MB)" for folder, size in weights.most_common(NAMED_FOLDERS))
    raise StepError(
        f"the code that workers need, {tree}, has {len(files)} files or more, and {total / 1e6:.1f} MB; at most "
        f"{LIMIT_FILES} files and {LIMIT_BYTES / 1e6:.0f} MB can be sent. The largest folders: {largest}. "
        "Move what is no code out of the tree"
    )
