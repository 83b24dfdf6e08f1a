"""Which files of the installed packages make up the site.

Only what the package's own record lists is read, so two installations of equal versions have equal sites.
"""

from __future__ import annotations

import importlib.metadata
import re
import sysconfig
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

from marin.data.crawl.site.docstrings import ModuleDocs, module_docs
from marin.data.crawl.site.packages import STDLIB, STDLIB_MODULES

_LICENCE = re.compile(r"(?:^|/)[^/]*(licen[cs]e|copying|notice|authors)[^/]*$", re.IGNORECASE)
_LICENCE_SUFFIXES = frozenset({"", ".txt", ".md", ".rst", ".apache", ".bsd", ".mit"})
_TESTS = re.compile(r"(^|/)(_?tests?|testing|_vendor|vendored|thirdparty_files)(/|$)|(^|/)(test_|conftest)[^/]*$")
_MIN_DOCUMENTATION = 300
_MAX_SOURCE = 1_000_000
_MAX_LICENCE = 200_000


@dataclass
class PackageFiles:
    """The files of one package by their names on the site; contents are read and parsed on first use."""

    name: str
    version: str
    summary: str
    readme: str
    requirements: tuple[str, ...]
    sources: dict[str, Path]
    licence_files: dict[str, Path]
    _docs: dict[str, ModuleDocs | None] = field(default_factory=dict)

    @cached_property
    def modules(self) -> tuple[str, ...]:
        """Dotted names of the modules with enough documentation, those with most of it first."""
        sizes = {name: _documentation(path) for name, path in self.sources.items()}
        documented = [name for name, size in sizes.items() if size >= _MIN_DOCUMENTATION]
        return tuple(sorted(documented, key=lambda name: (-sizes[name], name)))

    @cached_property
    def licences(self) -> tuple[str, ...]:
        """Names of the licence files, sorted."""
        return tuple(sorted(self.licence_files))

    def docs(self, module: str) -> ModuleDocs | None:
        """Documentation of a module, or None when it cannot be parsed."""
        if module not in self._docs:
            self._docs[module] = module_docs(self.sources[module].read_bytes())
        return self._docs[module]

    def licence(self, name: str) -> str:
        """Text of a licence file."""
        return self.licence_files[name].read_text("utf-8", errors="replace")


def package_files(name: str) -> PackageFiles:
    """The files of an installed package, or of the standard library.

    Raises:
        LookupError: the package is not installed, or its installation has no record of files.
    """
    return _standard_library() if name == STDLIB else _distribution(name)


def _distribution(name: str) -> PackageFiles:
    try:
        found = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        raise LookupError(f"package {name!r} is not installed") from None
    files = found.files
    if files is None:
        raise LookupError(f"the installation of package {name!r} has no record of its files; reinstall it with pip")
    root = str(found.locate_file(""))
    sources: dict[str, Path] = {}
    licences: dict[str, Path] = {}
    for name_in_record in map(str, files):
        if name_in_record.startswith(("..", "/")):
            continue
        if name_in_record.endswith(".py"):
            if not _TESTS.search(name_in_record):
                sources[_module_name(PurePosixPath(name_in_record))] = Path(root, name_in_record)
        elif _LICENCE.search(name_in_record):
            path = PurePosixPath(name_in_record)
            if path.suffix.lower() in _LICENCE_SUFFIXES:
                licences[_licence_name(path)] = Path(root, name_in_record)
    metadata = found.metadata
    payload = metadata.get_payload()  # type: ignore[attr-defined]  # an email.message.Message behind its protocol
    return PackageFiles(
        name=name,
        version=found.version,
        summary=metadata["Summary"] or "",
        readme=metadata["Description"] or (payload if isinstance(payload, str) else ""),
        requirements=tuple(
            sorted({re.split(r"[^\w.-]", text, maxsplit=1)[0].lower() for text in found.requires or ()})
        ),
        sources=_readable(sources, _MAX_SOURCE),
        licence_files=_readable(licences, _MAX_LICENCE),
    )


def _standard_library() -> PackageFiles:
    import platform

    root = Path(sysconfig.get_path("stdlib"))
    sources: dict[str, Path] = {}
    for name in STDLIB_MODULES:
        if (root / f"{name}.py").is_file():
            sources[name] = root / f"{name}.py"
        for path in sorted((root / name).rglob("*.py")):
            relative = PurePosixPath(path.relative_to(root).as_posix())
            if not _TESTS.search(relative.as_posix()):
                sources[_module_name(relative)] = path
    return PackageFiles(
        name=STDLIB,
        version=platform.python_version(),
        summary="The standard library of the Python language",
        readme="",
        requirements=(),
        sources=_readable(sources, _MAX_SOURCE),
        licence_files=_readable({"LICENSE.txt": root / "LICENSE.txt"}, _MAX_LICENCE),
    )


def _module_name(path: PurePosixPath) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _licence_name(path: PurePosixPath) -> str:
    """The path without the version that the folder's name holds."""
    first, *rest = path.parts
    return "/".join(rest) if first.endswith(".dist-info") and rest else path.as_posix()


def _readable(files: dict[str, Path], limit: int) -> dict[str, Path]:
    return {name: path for name, path in files.items() if path.is_file() and path.stat().st_size <= limit}


def _documentation(path: Path) -> int:
    """Bytes between triple quotes: a cheap measure of documentation, without parsing."""
    return sum(len(part) for part in path.read_bytes().split(b'"""')[1::2])
