"""The scripts of the benchmarks as modules: they lie beside each other and import one another by their bare names."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

BENCH = Path(__file__).resolve().parents[2] / "operations" / "bench"


def loaded(name: str) -> ModuleType:
    """The script of that name, importable by it from now on."""
    spec = importlib.util.spec_from_file_location(name, BENCH / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
