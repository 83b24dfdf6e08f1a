"""A worker whose extractor hangs in native code, dies, raises or eats memory, as the page asks."""

import os
import re

from marin.data.crawl.extraction import worker


def _extract(html: str) -> str:
    if "hang" in html:
        re.match(r"(a+)+$", "a" * 64 + "b")
    if "die" in html:
        os._exit(11)
    if "raise" in html:
        raise RuntimeError("no tree")
    if "memory" in html:
        return str(len(bytearray(worker.MEMORY_LIMIT)))
    return html.upper()


if __name__ == "__main__":
    worker.extractor = lambda name, max_depth: _extract
    worker.main()
