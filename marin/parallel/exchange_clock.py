"""Time that a rank spends inside the expert exchange, forwards and backwards, waiting for slower ranks included."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch import Tensor

from marin.parallel.compat import exchange_rows


class ExchangeClock:
    """Times every exchange of rows that goes through it; several layers may share one.

    On CUDA pairs of events are recorded and read when the time is taken, so that nothing waits for the device.
    `entered`, `left` and `last` say where a rank is that hangs.
    """

    def __init__(self) -> None:
        self.entered = 0
        self.left = 0
        self.last = ""
        self._seconds = 0.0
        self._started = 0.0
        self._event: torch.cuda.Event | None = None
        self._events: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def exchange(
        self, what: str, rows: Tensor, received: list[int], sent: list[int], group: dist.ProcessGroup
    ) -> Tensor:
        """`exchange_rows`, timed here and in its backward pass."""
        if torch.compiler.is_compiling():
            return exchange_rows(rows, received, sent, group)
        on_device = rows.is_cuda
        self._enter(what, on_device)
        out = exchange_rows(rows, received, sent, group)
        self._leave()
        node = out.grad_fn
        while node is not None and "all_to_all" not in node.name():
            node = node.next_functions[0][0] if node.next_functions else None
        if node is not None:
            node.register_prehook(lambda grads: self._enter(f"{what}, backward", on_device))
            node.register_hook(lambda made, given: self._leave())
        return out

    def take(self) -> float:
        """Seconds since the last call."""
        for start, end in self._events:
            end.synchronize()
            self._seconds += start.elapsed_time(end) / 1e3
        self._events.clear()
        taken, self._seconds = self._seconds, 0.0
        return taken

    def _enter(self, what: str, on_device: bool) -> None:
        self.last = what
        self.entered += 1
        if on_device:
            self._event = _event()
        else:
            self._started = time.perf_counter()

    def _leave(self) -> None:
        self.left += 1
        if self._event is None:
            self._seconds += time.perf_counter() - self._started
            return
        self._events.append((self._event, _event()))
        self._event = None


def _event() -> torch.cuda.Event:
    """A moment on the current stream."""
    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch leaves it untyped
    event.record()
    return event
