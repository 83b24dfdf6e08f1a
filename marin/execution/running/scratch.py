"""A temporary folder of this machine for a piece of work, made when it is first asked for."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path


class Scratch:
    """Makes its folder on first use; most steps never need one."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def path(self) -> Path:
        """The folder."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="marin-")
        return Path(self._folder.name)

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


@contextlib.contextmanager
def scratch_folder() -> Iterator[Scratch]:
    """A scratch that is removed when the block ends."""
    scratch = Scratch()
    try:
        yield scratch
    finally:
        scratch.remove()
