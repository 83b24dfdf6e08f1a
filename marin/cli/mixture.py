"""`marin mixture`: a published table of cells as the `mixture` settings of an experiment."""

from __future__ import annotations

import sys
from pathlib import Path

from marin.cli.arguments import USAGE_ERROR, fail
from marin.cli.overrides import to_yaml


def run(file: str, max_epochs: float | None) -> int:
    """Print the settings; exits with 2 when the file is no table of cells."""
    from marin.tokens.mixture.cells import CellTable

    try:
        config = CellTable.from_json(Path(file).read_text(encoding="utf-8")).config(max_epochs)
    except (OSError, ValueError) as error:
        fail(f"{file}: {error}", USAGE_ERROR)
    indented = to_yaml(config).rstrip("\n").replace("\n", "\n  ")
    sys.stdout.write(f"mixture:\n  {indented}\n")
    return 0
