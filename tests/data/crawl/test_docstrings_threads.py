"""Sources are read from several threads at once by the site's server."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from marin.data.crawl.site.docstrings import module_docs

SOURCE = (
    '"""A module."""\n'
    + "".join(
        f'def f{i}(a, b=({"(" * 20}{i}{")" * 20},)):\n    """Say {i}."""\n    return [a, {{b: a}}]\n'
        for i in range(400)
    )
).encode()


def test_many_threads_read_sources_at_once() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(module_docs, [SOURCE] * 32))
    finally:
        sys.setswitchinterval(interval)
    assert {len(docs.functions) for docs in found if docs is not None} == {400}
    assert None not in found
