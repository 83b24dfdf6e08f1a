"""The graph that an experiment's file builds, without running the file."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from marin.cli.arguments import USAGE_ERROR, fail
from marin.recipes import scale_names


def build_of(path: str, option: str) -> Any:
    """The function `build` of an experiment's file, which is imported and not run; exits with 2 when there is none.

    `option` is how the command line calls the file.
    """
    file = Path(path)
    if not file.is_file():
        scales = ", ".join(scale_names())
        fail(f"{option} {path}: there is no such file; it is FILE or FILE:SCALE with one of {scales}", USAGE_ERROR)
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        fail(f"{option} {path} is no Python file", USAGE_ERROR)
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(file.stem, module)
    sys.path.insert(0, str(file.parent.resolve()))  # as when the file is run
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever an experiment's own code raises
        fail(f"{option} {path} cannot be imported: {type(error).__name__}: {error}", USAGE_ERROR)
    build = getattr(module, "build", None)
    if not callable(build):
        fail(f"{option} {path} has no function build(scale)", USAGE_ERROR)
    return build
