"""Scales by name. A scale is made when it is asked for, because the small ones look up installed packages."""

from __future__ import annotations

from marin.recipes.scale import Scale

_NAMES = ("smoke", "laptop", "node", "hero")


def scale_names() -> tuple[str, ...]:
    """Names of the scales, smallest first."""
    return _NAMES


def scale_named(name: str) -> Scale:
    """The scale of a name; `ValueError` for an unknown one."""
    if name in ("smoke", "laptop"):
        from marin.recipes import small

        return small.smoke() if name == "smoke" else small.laptop()
    if name in ("node", "hero"):
        from marin.recipes import large

        return large.node() if name == "node" else large.hero()
    raise ValueError(f"scale {name!r} is none of {', '.join(_NAMES)}")
