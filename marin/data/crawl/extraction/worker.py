"""The worker process: reads batches of pages, answers page by page.

Run as ``python -m marin.data.crawl.extraction.worker EXTRACTOR MAX_DEPTH PAGE_SECONDS`` by
:class:`marin.data.crawl.extraction.isolation.IsolatedExtractor`. Both directions carry frames of a length and a pickle.
"""

from __future__ import annotations

import pickle
import resource
import signal
import struct
import sys
from typing import BinaryIO

from marin.data.crawl.extraction.blocks import TooDeepError
from marin.data.crawl.extraction.extractors import STRIPPED, Extract, extractor, strip_tags

MEMORY_LIMIT = 6 * 1024**3
"""Address space of a worker, in bytes: a page that needs more is counted as failed."""

_ORPHAN_SECONDS = 60.0
"""How much longer than the page limit a worker whose parent is gone may work on a page."""

READY = b"ready"
"""What a worker says first, once its extractor is loaded."""

_LENGTH = struct.Struct(">I")


def read_frame(stream: BinaryIO) -> object | None:
    """The next frame, or None when the stream has ended."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    return pickle.loads(stream.read(_LENGTH.unpack(head)[0]))  # type: ignore[no-any-return]


def to_frame(value: object) -> bytes:
    """A value as a frame."""
    data = pickle.dumps(value, protocol=5)
    return _LENGTH.pack(len(data)) + data


def extract_page(html: str, extract: Extract, name: str) -> tuple[str, str]:
    """Text of one page, and the name of what extracted it."""
    try:
        return extract(html).strip("\n"), name
    except TooDeepError:
        return strip_tags(html), STRIPPED


def main() -> None:
    """Serve batches until standard input ends."""
    name, max_depth, page_seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The default action of the alarm ends the process even in native code: a worker never outlives its parent for long.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    incoming, outgoing = sys.stdin.buffer, sys.stdout.buffer
    extract = extractor(name, max_depth)
    outgoing.write(READY)
    outgoing.flush()
    while True:
        batch = read_frame(incoming)
        if not isinstance(batch, list):
            return
        for html in batch:
            signal.setitimer(signal.ITIMER_REAL, page_seconds + _ORPHAN_SECONDS)
            try:
                answer: tuple[str | None, str] = extract_page(html, extract, name)
            except Exception as error:  # whatever an extractor raises costs one page, which is counted
                answer = (None, f"{type(error).__name__}: {error}")
            outgoing.write(to_frame(answer))
            outgoing.flush()
        signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    main()
