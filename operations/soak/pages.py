"""Archives and pages that are damaged at random, read and extracted until the time is over.

    python operations/soak/pages.py --minutes 5 --seed 1

A round is 200 archives in every packing, whole files and parts of them, and 100 mangled pages in a worker process. No
record is lost that the damage does not touch, none goes without a count, nothing raises, and every page is answered in
time by the worker that was started first.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from marin.data.crawl.extraction.isolation import IsolatedExtractor
from operations.soak.campaign import Round, play_campaign
from tests.data.crawl.damage import PACKINGS, archive, damaged, faults_of_reading, mangled_page
from tests.data.crawl.page_kinds import KINDS, VOCABULARIES, make_page

ARCHIVES = 200
PAGES = 100
PAGE_SECONDS = 10.0


def play(one: Round) -> None:
    """Damaged archives and mangled pages."""
    choice = one.random
    for _ in range(ARCHIVES):
        packing = choice.choice(tuple(PACKINGS))
        whole = archive(choice, packing)
        data, touched = damaged(choice, whole, choice.randint(1, 6))
        parts = choice.choice((None, 2, 3, 7))
        found = faults_of_reading(whole, data, touched, part_bytes=parts and max(1, len(data) // parts))
        one.counts.update(archives=1, records=len(whole.records), bytes=len(data))
        for fault in found:
            (one.folder / "archive").write_bytes(data)
            one.expect(False, f"{packing}, touched {list(map(sorted, touched))}: {fault}")
    sources = [
        make_page(choice.choice(tuple(KINDS)), choice.choice(tuple(VOCABULARIES)), str(n)).html for n in range(10)
    ]
    pages = [mangled_page(choice, choice.choice(sources)) for _ in range(PAGES)]
    with IsolatedExtractor("resiliparse", page_seconds=PAGE_SECONDS, max_depth=512) as isolated:
        for number, found_text in enumerate(isolated.extract(pages)):
            one.counts.update(pages=1, stripped=found_text.extractor == "strip-tags")
            if found_text.failure is not None:
                (one.folder / f"page{number}.html").write_text(pages[number], errors="surrogatepass")
                one.expect(False, f"page {number}: {found_text.failure}")


def main(arguments: list[str] | None = None) -> int:
    """The campaign by its command line; its exit code."""
    return play_campaign("pages", __doc__ or "", play, arguments)


if __name__ == "__main__":
    sys.exit(main())
