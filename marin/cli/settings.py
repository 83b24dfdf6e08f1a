"""The one place where the environment is read."""

from __future__ import annotations

import os

DEFAULT_PREFIX = "./artifacts"


def default_prefix() -> str:
    """Where artifacts go unless --prefix says otherwise: MARIN_PREFIX, or a folder beside the caller."""
    return os.environ.get("MARIN_PREFIX") or DEFAULT_PREFIX


def default_cluster() -> str | None:
    """The Ray cluster to join unless --cluster says otherwise: RAY_ADDRESS, or none."""
    return os.environ.get("RAY_ADDRESS") or None
