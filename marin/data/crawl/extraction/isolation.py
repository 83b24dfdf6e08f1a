"""Extraction in a child process, with a time limit for each page that holds in native code too.

Pages are sent in batches and answered one by one, so the cost of the process is shared, and a page that hangs or brings
the process down costs itself only: the process is replaced, and the rest of the batch is sent again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pickle
import selectors
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import psutil

from marin.data.crawl.extraction.worker import READY, to_frame
from marin.execution import StepError

logger = logging.getLogger(__name__)

Failure = Literal["timeout", "extractor_failed", "extractor_crashed"]

_PAGES_A_PROCESS = 20_000
RECYCLED_BYTES = 1024**3
"""Resident memory with which a worker that has answered its batch is replaced: extractors on C trees leak."""

_START_SECONDS = 120.0
_READ = 1 << 20
_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, slots=True)
class Extraction:
    """Text of a page with the extractor's name, or the reason why there is none."""

    text: str
    extractor: str
    failure: Failure | None = None


class IsolatedExtractor:
    """An extractor in a process of its own. Use as a context manager. ``started`` counts its processes.

    Args:
        name: which extractor.
        page_seconds: time limit for one page.
        max_depth: nesting above which a page only has its tags stripped.
        worker: module that the process runs.
        recycled_bytes: resident memory with which a process is replaced.
    """

    def __init__(
        self,
        name: str,
        *,
        page_seconds: float,
        max_depth: int,
        worker: str = "marin.data.crawl.extraction.worker",
        recycled_bytes: int = RECYCLED_BYTES,
    ) -> None:
        self._command = [
            *(sys.executable, "-m", worker),
            *(name, str(max_depth), str(page_seconds)),
        ]
        self._page_seconds = page_seconds
        self._recycled_bytes = recycled_bytes
        self.started = 0
        self._worker: _Worker | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def extract(self, pages: Sequence[str]) -> Iterator[Extraction]:
        """Extract a batch of pages, in order."""
        done = 0
        while done < len(pages):
            worker = self._start()
            try:
                worker.send(list(pages[done:]))
                for _ in range(done, len(pages)):
                    yield worker.answer(self._page_seconds)
                    done += 1
            except _PageFailed as failed:
                self._stop()
                logger.warning("a page of %d characters ended its worker: %s", len(pages[done]), failed.failure)
                yield Extraction("", "", failed.failure)
                done += 1

    def _start(self) -> _Worker:
        if self._worker is not None and (
            self._worker.answered >= _PAGES_A_PROCESS or self._worker.resident_bytes() > self._recycled_bytes
        ):
            self._stop()
        if self._worker is None:
            self._worker = _Worker(self._command)
            self.started += 1
        return self._worker

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker = None


class _PageFailed(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure: Failure = failure


class _Worker:
    """One child process and the bytes that have come from it."""

    def __init__(self, command: list[str]) -> None:
        self.answered = 0
        root = str(Path(__file__).resolve().parents[4])
        paths = [root, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input = self._process.stdin
        self._output = self._process.stdout.fileno()
        self._buffer = bytearray()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._output, selectors.EVENT_READ)
        try:
            self._take(len(READY), time.monotonic() + _START_SECONDS)
        except _PageFailed as failed:
            self.kill()
            raise StepError(f"the extraction worker did not start ({failed.failure}): {' '.join(command)}") from None

    def send(self, pages: list[str]) -> None:
        """Send a batch. The worker reads it whole before it answers, so this cannot block for long."""
        try:
            self._input.write(to_frame(pages))
            self._input.flush()
        except OSError:
            raise _PageFailed("extractor_crashed") from None

    def answer(self, page_seconds: float) -> Extraction:
        """The next page's answer."""
        deadline = time.monotonic() + page_seconds
        head = self._take(_LENGTH.size, deadline)
        text, detail = pickle.loads(self._take(_LENGTH.unpack(head)[0], deadline))
        self.answered += 1
        if text is None:
            logger.info("a page could not be extracted: %s", detail)
            return Extraction("", "", "extractor_failed")
        return Extraction(text, detail)

    def resident_bytes(self) -> int:
        """Memory that the process holds; 0 when it is gone."""
        try:
            return int(psutil.Process(self._process.pid).memory_info().rss)
        except psutil.Error:
            return 0

    def kill(self) -> None:
        """End the process, whatever it does."""
        self._selector.close()
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        with contextlib.suppress(OSError):
            self._input.close()

    def _take(self, size: int, deadline: float) -> bytes:
        while len(self._buffer) < size:
            if not self._selector.select(max(0.0, deadline - time.monotonic())):
                raise _PageFailed("timeout")
            chunk = os.read(self._output, _READ)
            if not chunk:
                raise _PageFailed("extractor_crashed")
            self._buffer += chunk
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken
