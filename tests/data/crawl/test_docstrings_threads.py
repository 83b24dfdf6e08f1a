"""Sources are read from several threads at once by the site's server."""

from __future__ import annotations

import gc
import time
from concurrent.futures import ThreadPoolExecutor

from marin.data.crawl.site.docstrings import module_docs

SOURCE = (
    '"""A module."""\n'
    + "".join(
        f'def f{i}(a, b=({"(" * 20}{i}{")" * 20},)):\n    """Say {i}."""\n    return [a, {{b: a}}]\n'
        for i in range(100)
    )
).encode()


def yield_to_other_threads(phase: str, info: dict[str, int]) -> None:
    """What any finaliser may do while a syntax tree is being built."""
    time.sleep(0)


def test_many_threads_read_sources_at_once() -> None:
    thresholds = gc.get_threshold()
    gc.set_threshold(200)
    gc.callbacks.append(yield_to_other_threads)
    try:
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(module_docs, [SOURCE] * 8))
    finally:
        gc.callbacks.remove(yield_to_other_threads)
        gc.set_threshold(*thresholds)
    assert {len(docs.functions) for docs in found if docs is not None} == {100}
    assert None not in found
