"""Counts the bytes of tensors that are alive, on any device, the meta device included."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor

from marin.parallel.compat import DispatchMode


class LiveBytes(DispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """While it is entered, follows every storage that an operation makes until it is freed.

    What was there before is not counted, nor what an operation frees before it returns.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.now = 0
        self.peak = 0
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operation and look at what it made."""
        made = function(*args, **(kwargs or {}))
        # A view of what was there before is nothing new.
        given = {tensor.untyped_storage()._cdata for tensor in _tensors([args, list((kwargs or {}).values())])}
        for tensor in _tensors(made):
            storage = tensor.untyped_storage()
            key = storage._cdata
            if key not in self._sizes and key not in given:
                self._sizes[key] = storage.nbytes()
                self.now += storage.nbytes()
                self.peak = max(self.peak, self.now)
                weakref.finalize(storage, self._forget, key)
        return made

    def _forget(self, key: int) -> None:
        self.now -= self._sizes.pop(key)


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)
