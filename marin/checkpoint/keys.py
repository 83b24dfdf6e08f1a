"""The strict comparison of what a checkpoint holds with what is asked of it."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from marin.checkpoint.errors import KeyMismatch

SHOWN = 20
"""Names of one kind that an error lists before it counts the rest."""


@dataclass(frozen=True)
class TensorForm:
    """Global shape and dtype (as torch prints it) of one tensor."""

    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{list(self.shape)} {self.dtype}"


def check_keys(
    stored: Mapping[str, TensorForm], wanted: Mapping[str, TensorForm], where: str, allow: Sequence[str] = ()
) -> tuple[str, ...]:
    """The names to load: all of them, or KeyMismatch with every missing, unexpected and mismatched name.

    Names that match a pattern of `allow` (fnmatch) may be missing on either side; a shape or dtype must agree all the
    same.
    """
    missing = sorted(name for name in wanted.keys() - stored.keys() if not _allowed(name, allow))
    unexpected = sorted(name for name in stored.keys() - wanted.keys() if not _allowed(name, allow))
    mismatched = sorted(name for name in wanted.keys() & stored.keys() if wanted[name] != stored[name])
    if missing or unexpected or mismatched:
        parts = [f"the tensors of the {where} are not those that are asked for"]
        parts += _listed("missing in the checkpoint", missing)
        parts += _listed("unexpected in the checkpoint", unexpected)
        described = [f"{name}: the checkpoint has {stored[name]}, asked for {wanted[name]}" for name in mismatched]
        parts += _listed("of another shape or dtype", described)
        raise KeyMismatch("\n".join(parts))
    return tuple(name for name in wanted if name in stored)


def _allowed(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _listed(title: str, names: Sequence[str]) -> list[str]:
    if not names:
        return []
    rest = [f"    and {len(names) - SHOWN} more"] if len(names) > SHOWN else []
    return [f"  {title} ({len(names)}):", *(f"    {name}" for name in names[:SHOWN]), *rest]
