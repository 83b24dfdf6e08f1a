"""The console while several steps change at once."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable
from typing import Any

from marin.execution import Artifact, Status, make_plan, step
from marin.execution.running.console import LiveConsole, PlainConsole
from marin.execution.running.progress import Progress
from marin.storage import open_store


@step("console/step", version="1")
def stated(number: int) -> Artifact:
    """A step that is only shown."""
    return Artifact()


def progress_of(number: int) -> Progress:
    plan = make_plan([stated(number)], open_store("memory://console"))
    return Progress(plan.steps[0], Status.running)


class SlowStream(io.StringIO):
    """Lets other threads in after each write."""

    def write(self, text: str) -> int:
        written = super().write(text)
        time.sleep(0.001)
        return written


def test_lines_of_two_threads_do_not_run_into_each_other() -> None:
    stream = SlowStream()
    console = PlainConsole(stream)

    def show(progress: Progress) -> None:
        for _ in range(30):
            console.changed(progress)

    threads = [threading.Thread(target=show, args=(progress_of(number),)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 60
    assert all(line.count("console/step-") == 1 for line in lines)


class Figures(dict[str, float]):
    """Figures whose reading gives another thread time for something."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        super().__init__(loss=1.0)
        self._meanwhile = meanwhile

    def items(self) -> Any:
        thread = threading.Thread(target=self._meanwhile)
        thread.start()
        thread.join(timeout=0.5)
        return super().items()


def test_a_step_can_end_while_its_bar_moves() -> None:
    console = LiveConsole()
    progress = progress_of(1)
    console.changed(progress)

    def end() -> None:
        progress.status = Status.done
        console.changed(progress)

    progress.latest = {"done": 1, "total": 2, "unit": "docs", "figures": Figures(end)}
    console.advanced(progress)
    console.close()
