"""Removing many objects at once, and saying of each that stays why."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from marin.storage import ObjectInfo, Store, StoreError

AT_ONCE = 32
"""Requests at the same time."""


def remove_object(store: Store, key: str) -> str | None:
    """Remove an object; None, or why it is still there."""
    try:
        store.delete(key)
    except (StoreError, OSError) as error:
        return f"{store.url_of(key)}: {error}"
    return None


def remove_objects(store: Store, infos: Sequence[ObjectInfo]) -> tuple[list[ObjectInfo], list[str]]:
    """(what was removed, why the others are still there)."""
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="marin-remove") as pool:
        errors = list(pool.map(lambda info: remove_object(store, info.key), infos))
    gone = [info for info, error in zip(infos, errors, strict=True) if error is None]
    return gone, [error for error in errors if error is not None]


def remove_empty_folders(store: Store, folders: Iterable[str]) -> None:
    """Remove these folders of a local prefix where they are empty, with what is empty below and above them.

    Elsewhere there are no folders. A store that writes into one at this moment makes it again.
    """
    inside = store.local_path("_")
    if inside is None:
        return
    root = inside.parent
    for folder in set(folders):
        for below, _, _ in os.walk(root / folder, topdown=False):
            _remove_if_empty(Path(below))
        above = (root / folder).parent
        while above != root and _remove_if_empty(above):
            above = above.parent


def _remove_if_empty(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:  # something lies in it, or it is gone
        return not folder.exists()
    return True
