"""From a crawl to clean documents, against datatrove: one JSON line a row, CPU seconds, same input, same run.

    python operations/bench/crawl.py --warc FILE… --articles FOLDER
    python operations/bench/crawl.py --warc FILE --rows pages

Ours and the peer take turns, so that a busy minute meets both, and the best of `--rounds` counts. Rows:

- `pages`: WARC to decoded pages, MB of UTF-8 text a CPU second; the peer is datatrove's `WarcReader`, which needs
  `faust-cchardet`, `python-magic` and the system's libmagic; without them the row has no peer and says why.
- `extraction`: HTML to main text, pages a CPU second; the peer is trafilatura as datatrove calls it. `--articles`
  (`html/NAME.html.gz`, and `ground-truth.json.gz` with NAME → `articleBody`) adds precision, recall and F1: word
  4-grams as multisets; precision is the mean over pages with output, recall over all pages. Two halves of the pages are
  reported too, so that a rule that was made for one half shows.
- `signals`: Gopher repetition and quality, C4, FineWeb and MinHash signatures, documents a CPU second, on the text of
  the WARCs' pages and of `--texts` (JSON lines with `text`, plain or zstd); the peer is datatrove's filters and its own
  signatures.
- `agreement`: share of the same texts that both keep or both drop.
- `language`: documents a CPU second; the peer predicts as datatrove calls the model.
- `chain`: WARC to filtered documents, pages a CPU second, with the share of each stage.
- `memory`: peak memory, in MB, of a fresh process that reads a WARC of `--large-mb` with a page of 100 MB in it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

import crawl_reading  # noqa: E402  found beside this script
import crawl_signals  # noqa: E402
from crawl_inputs import Inputs  # noqa: E402

Row = dict[str, Any]

ROWS: dict[str, Callable[[Inputs], Iterator[Row]]] = {
    "pages": crawl_reading.decoded_pages,
    "extraction": crawl_reading.extraction,
    "signals": crawl_signals.signals,
    "agreement": crawl_signals.agreement,
    "language": crawl_signals.language,
    "chain": crawl_signals.chain,
    "memory": crawl_reading.memory,
}


def main() -> None:
    """Print the rows that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--warc", type=Path, nargs="+", default=[], metavar="FILE")
    parser.add_argument("--articles", type=Path, metavar="FOLDER", help="pages with hand-marked bodies")
    parser.add_argument("--texts", type=Path, nargs="+", default=[], metavar="FILE", help="JSON lines, plain or zstd")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--pages", type=int, default=300, help="pages of each WARC for rows with a slow peer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--large-mb", type=int, default=1000)
    options = parser.parse_args()
    inputs = Inputs(
        tuple(options.warc), options.articles, options.pages, options.rounds, options.large_mb, tuple(options.texts)
    )
    for name in options.rows:
        for row in ROWS[name](inputs):
            print(json.dumps(row, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
