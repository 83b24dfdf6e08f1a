"""Replace the lazy handles inside a step's arguments by what they became."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from marin.execution.artifact import Artifact


def resolve(value: Any, materialise: Callable[[Artifact], Artifact]) -> Any:
    """The value with every artifact in it passed through `materialise`; untouched parts are shared, not copied."""
    if isinstance(value, Artifact):
        return materialise(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = {}
        for field in dataclasses.fields(value):
            old = getattr(value, field.name)
            new = resolve(old, materialise)
            if new is not old:
                changed[field.name] = new
        return dataclasses.replace(value, **changed) if changed else value
    if isinstance(value, Mapping):
        items = {key: resolve(item, materialise) for key, item in value.items()}
        return items if any(items[key] is not value[key] for key in items) else value
    if isinstance(value, (list, tuple)):
        members = [resolve(item, materialise) for item in value]
        return type(value)(members) if any(new is not old for new, old in zip(members, value, strict=True)) else value
    return value
