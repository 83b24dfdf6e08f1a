"""Keep known secret values out of every text that leaves a process: logs, failures, progress, records, output.

What is known is remembered for the rest of the process's life: a failure is often put into words after the step that
knew the secret has ended. Values are looked for as they are and as Python, JSON and URLs write them; of a value of
many lines, such as a private key, also each line. What a child process prints, and a value that a step's code encodes
in some other way, is not seen.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
import threading
import traceback
import urllib.parse
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO, cast

from marin.execution.failures import StepError
from marin.storage import ChecksummedWriter

MASK = "***"
SHORTEST = 6
"""Characters. Something shorter occurs in ordinary text, which masking would make unreadable."""
SHORTEST_LINE = 16

_lock = threading.RLock()
_forms: tuple[str, ...] = ()


def _forms_of(value: str) -> Iterator[str]:
    lines = [line.strip() for line in value.splitlines()]
    parts = [value, value.strip(), *(line for line in lines if len(lines) > 1 and len(line) >= SHORTEST_LINE)]
    for part in parts:
        yield part
        yield repr(part)[1:-1]
        yield json.dumps(part)[1:-1]
        yield urllib.parse.quote(part, safe="")


def know(values: Iterable[str]) -> None:
    """Mask these values from here on; those shorter than `SHORTEST` are left alone."""
    global _forms
    fresh = {form for value in values if len(value) >= SHORTEST for form in _forms_of(value) if len(form) >= SHORTEST}
    with _lock:
        if not fresh <= set(_forms):
            _forms = tuple(sorted({*_forms, *fresh}, key=lambda form: (-len(form), form)))


def redact(text: str) -> str:
    """The text with every known secret value masked."""
    for form in _forms:
        if form in text:
            text = text.replace(form, MASK)
    return text


def redact_bytes(data: bytes) -> bytes:
    """UTF-8 text with every known secret value masked."""
    for form in _forms:
        data = data.replace(form.encode(), MASK.encode())
    return data


def exposes(text: str) -> bool:
    """Whether a text holds a known secret value."""
    return any(form in text for form in _forms)


def refuse_exposed(value: Any, what: str) -> None:
    """Raise `StepError` when a JSON value that is about to be kept as `what` holds a known secret value."""
    if _forms and exposes(json.dumps(value, ensure_ascii=False, default=str)):
        raise exposed(what)


def refuse_exposed_bytes(data: bytes, what: str) -> None:
    """Raise `StepError` when bytes that are about to be kept as `what` hold a known secret value."""
    if any(form.encode() in data for form in _forms):
        raise exposed(what)


def exposed(what: str) -> StepError:
    """The error of something that would be written with a secret in it."""
    return StepError(f"{what} would hold the value of a secret, which is never written anywhere; leave it out")


class _GuardedWriter(io.BufferedIOBase):
    """A writer that refuses bytes with a secret in them, also when two writes each bring a part of it."""

    def __init__(self, stream: ChecksummedWriter, values: tuple[str, ...], what: str) -> None:
        self._stream = stream
        self._values = [value.encode() for value in values]
        self._overlap = max(map(len, self._values)) - 1
        self._what = what
        self._end = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        chunk = self._end + bytes(data)
        if any(value in chunk for value in self._values):
            raise exposed(self._what)
        self._end = chunk[-self._overlap :]
        return self._stream.write(data)

    def tell(self) -> int:
        return self._stream.tell()

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        self._stream.close()
        super().close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def guarded(stream: ChecksummedWriter, values: Iterable[str], what: str) -> ChecksummedWriter:
    """A writer that raises `StepError` when the plain value of a secret is written; the stream itself without any."""
    found = tuple(values)
    return cast(ChecksummedWriter, _GuardedWriter(stream, found, what)) if found else stream


class _RedactingRecord(logging.LogRecord):
    """A log record whose text is masked, whichever handler prints it."""

    def getMessage(self) -> str:
        return redact(super().getMessage())


def _masking(factory: Callable[..., logging.LogRecord]) -> Callable[..., logging.LogRecord]:
    """A factory of log records whose text and traceback are masked, made by another one: Ray has one of its own."""

    def make(*arguments: Any, **keywords: Any) -> logging.LogRecord:
        record = factory(*arguments, **keywords)
        if type(record) is logging.LogRecord:  # a class of somebody's own stays what it is
            record.__class__ = _RedactingRecord
        if record.exc_info and record.exc_info[0] is not None:
            record.exc_text = redact("".join(traceback.format_exception(*record.exc_info)).rstrip("\n"))
        return record

    return make


class _RedactingStream:
    """Standard output or error, masked text by text."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(redact(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


_depth = 0
_replaced: list[tuple[str, _RedactingStream]] = []
_factories: tuple[Callable[..., logging.LogRecord], Callable[..., logging.LogRecord]] | None = None
"""The one that was there before, and the masking one over it."""


@contextlib.contextmanager
def redacting_output() -> Iterator[None]:
    """Mask what this process logs and prints while the block lasts. Blocks of several threads may overlap."""
    global _depth, _factories
    with _lock:
        _depth += 1
        if _depth == 1:
            for name in ("stdout", "stderr"):
                proxy = _RedactingStream(getattr(sys, name))
                _replaced.append((name, proxy))
                setattr(sys, name, cast(TextIO, proxy))
            factory = logging.getLogRecordFactory()
            _factories = factory, _masking(factory)
            logging.setLogRecordFactory(_factories[1])
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                for name, proxy in _replaced:
                    if getattr(sys, name) is proxy:
                        setattr(sys, name, proxy.stream)
                _replaced.clear()
                if _factories is not None and logging.getLogRecordFactory() is _factories[1]:
                    logging.setLogRecordFactory(_factories[0])
