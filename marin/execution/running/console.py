"""What a run shows while it runs: live bars on a terminal, plain lines elsewhere.

Steps change in threads of their own, so a console is called from several at a time.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any, TextIO

from marin.execution.running.progress import Progress, Status

LINE_SECONDS = 10.0

MARKS = {
    Status.done: "✓",
    Status.cached: "=",
    Status.failed: "✗",
    Status.blocked: "-",
    Status.waiting: "…",
    Status.running: "▸",
    Status.cancelled: "-",
}


def number(value: float) -> str:
    """A count or a figure in few characters."""
    if value != value:
        return "nan"
    if abs(value) >= 10_000:
        for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
            if abs(value) >= size:
                return f"{value / size:.4g}{unit}"
    return f"{value:.4g}"


def figures_text(message: dict[str, Any]) -> str:
    """The figures of a progress message."""
    return "  ".join(f"{name} {number(value)}" for name, value in message.get("figures", {}).items())


def evidence_text(progress: Progress) -> str:
    """What a finished step accounted for: counts in and out, bytes; and its remarks."""
    record = progress.step.record
    if record is None:
        return ""
    parts = [f"{number(flow.kept)} of {number(flow.read)} {flow.unit}" for flow in record.flows]
    if record.files:
        parts.append(f"{number(record.size)}B in {len(record.files)} files")
    return "; ".join([", ".join(parts), *(f"! {remark}" for remark in record.remarks)])


class PlainConsole:
    """One line for each change, and one every few seconds for what takes longer."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._start = time.monotonic()
        self._lock = threading.Lock()
        self._shown: dict[int, float] = {}

    def _line(self, mark: str, text: str) -> None:
        with self._lock:
            print(f"{time.monotonic() - self._start:7.1f}s {mark} {text}", file=self._stream, flush=True)

    def note(self, text: str) -> None:
        """Say something of the run as a whole."""
        self._line(" ", text)

    def changed(self, progress: Progress, text: str = "") -> None:
        """Say what became of a step."""
        detail = text.splitlines()[0] if text else evidence_text(progress) if progress.status is Status.done else ""
        seconds = f" in {progress.seconds:.1f}s" if progress.seconds else ""
        line = f"{progress.step.display} {progress.status.value}{seconds}{': ' if detail else ''}{detail}"
        self._line(MARKS.get(progress.status, " "), line)

    def advanced(self, progress: Progress) -> None:
        """Say how far a step is, now and then."""
        now = time.monotonic()
        if now - self._shown.setdefault(id(progress), now) < LINE_SECONDS:
            return
        self._shown[id(progress)] = now
        message = progress.latest
        total = f" of {number(message['total'])}" if message["total"] else ""
        text = f"{progress.step.display}: {number(message['done'])}{total} {message['unit']}  {figures_text(message)}"
        self._line(" ", text.rstrip())

    def close(self) -> None:
        """Nothing is held."""


class LiveConsole:
    """A line for each finished step, and below them a bar for each running one."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        self._bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[count]}"),
            TextColumn("{task.fields[rate]}", style="cyan"),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[figures]}", style="magenta"),
            transient=True,
        )
        self._bars.start()
        self._tasks: dict[int, Any] = {}
        self._lock = threading.Lock()

    def note(self, text: str) -> None:
        """Say something of the run as a whole."""
        self._bars.console.print(text, style="dim", markup=False)

    def changed(self, progress: Progress, text: str = "") -> None:
        """Open or close a step's bar."""
        with self._lock:
            self._change(progress, text)

    def _change(self, progress: Progress, text: str) -> None:
        from rich.markup import escape

        step = progress.step
        if progress.status in (Status.running, Status.waiting):
            if id(step) not in self._tasks:
                self._tasks[id(step)] = self._bars.add_task(
                    escape(step.display), total=None, count="", rate="", figures=escape(text)
                )
            else:
                self._bars.update(self._tasks[id(step)], figures=escape(text))
            return
        task = self._tasks.pop(id(step), None)
        if task is not None:
            self._bars.remove_task(task)
        detail = text.splitlines()[0] if text else evidence_text(progress)
        style = {"done": "green", "cached": "dim", "failed": "bold red"}.get(progress.status.name, "yellow")
        if progress.step.record is not None and progress.step.record.remarks:
            style = "yellow"
        seconds = f" {progress.seconds:.1f}s" if progress.seconds else ""
        line = f"[{style}]{MARKS[progress.status]} {escape(step.display)}[/]{seconds}  [dim]{escape(detail)}[/]"
        self._bars.console.print(line)

    def advanced(self, progress: Progress) -> None:
        """Move a step's bar."""
        with self._lock:
            self._move(progress)

    def _move(self, progress: Progress) -> None:
        task = self._tasks.get(id(progress.step))
        if task is None:
            return
        message = progress.latest
        done, total = message["done"], message["total"]
        elapsed = time.monotonic() - progress.started
        count = f"{number(done)}{f'/{number(total)}' if total else ''} {message['unit']}"
        rate = f"{number(done / elapsed)}/s" if elapsed > 1 and done else ""
        self._bars.update(task, completed=done, total=total, count=count, rate=rate, figures=figures_text(message))

    def close(self) -> None:
        """Give the terminal back."""
        self._bars.stop()


def console_for(stream: TextIO) -> LiveConsole | PlainConsole:
    """Bars on a terminal, lines elsewhere."""
    return LiveConsole() if stream.isatty() else PlainConsole(stream)
