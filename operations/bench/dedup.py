"""Finding duplicates, against datatrove, rensa and text-dedup: one JSON line a row.

    python operations/bench/dedup.py --text FILE…
    python operations/bench/dedup.py --text FILE… --only truth --documents 5000

Every figure is of a fresh process on the same documents, in CPU seconds of the work without imports and with the
process's children; sides take turns, and the best of `--rounds` counts. Documents are cut from the words of `--text`
(JSON lines with `text`, or plain text; plain or zstd), 150 to 400 words each. Rows:

- `signatures`: MinHash signatures (14 bands of 8 rows over word 5-grams, words included), documents a CPU second. Ours
  is with all features of the step of signals, `words_only` without what signatures do not need; the peer is
  datatrove's signatures without writing them.
- `whole`: fuzzy duplicate removal of `--documents` documents, of which 8% are exact copies up to case and white space,
  12% near copies, and 10% near copies of one text. Ours is the steps of signals and of duplicates, with everything
  else that signals measure, such as the language, and verification, verdicts and the report (`steps` has each);
  `alone` has words and signatures in the place of the step of signals. One row a peer: datatrove's four
  stages, which verify nothing, and the libraries rensa and text-dedup. `recall` is of the documents that have to go,
  `lost` counts texts of which no copy stayed.
- `growth`: duplicates of made-up short documents, a tenth of them in one cluster, half in clusters of Zipf-sized
  numbers, at each of `--sizes`; CPU milliseconds a document, and how many times the figure of the smallest size that
  is; `peak_mb` is of the process. Signals are made beforehand.
- `truth`: recall and precision of ours against a comparison of all pairs, on documents of which half are copies with
  1 to 24 edits. Recall is of the pairs whose 5-grams have a Jaccard similarity of at least 0.8; precision is the share
  of removed documents whose 3-grams are in the kept one to at least three quarters.

Peers from PyPI are installed under `--peers-folder`; one that cannot be, or that fails, has a row that says why.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

import dedup_inputs  # noqa: E402  found beside this script
import dedup_peers  # noqa: E402
from dedup_peers import Figures  # noqa: E402

Row = dict[str, Any]
SIMILARITY, CONTAINMENT = 0.8, 0.75


@dataclass(frozen=True)
class Request:
    """What to measure, and where."""

    texts: tuple[Path, ...]
    documents: int
    sizes: tuple[int, ...]
    rounds: int
    peers: tuple[str, ...]
    peers_folder: Path
    folder: Path

    def words(self) -> list[str]:
        """The words of the texts."""
        if not self.texts:
            raise SystemExit("the row needs texts to cut documents from: give --text FILE…")
        return dedup_inputs.words_of(self.texts)


def row(name: str, ours: float, peer: float | None, unit: str, given: str, *, less: bool, **more: Any) -> Row:
    """A line; `ratio` is above 1 where ours is better, null without a peer."""
    ratio = None if not peer else round(peer / ours if less else ours / peer, 2)
    figures = {"ours": round(ours, 3), "peer": None if peer is None else round(peer, 3), "ratio": ratio}
    return {"name": name, **figures, "unit": unit, "input": given} | more


def signatures(request: Request) -> Iterator[Row]:
    """Documents a CPU second."""
    texts = dedup_inputs.planted(request.words(), request.documents)
    sides = {"ours": dedup_peers.ours("signatures"), "words only": dedup_peers.ours("words")}
    if "datatrove" in request.peers:
        sides["datatrove"] = dedup_peers.datatrove("datatrove-signatures")
    found = _raced(request, sides, texts)
    rates = {name: len(texts) / one.cpu for name, one in found.items() if isinstance(one, Figures)}
    ours = _measured(found, "ours")
    yield row(
        "signatures",
        len(texts) / ours.cpu,
        rates.get("datatrove"),
        "docs/s",
        _described(texts),
        less=False,
        peer_name="datatrove",
        words_only=round(rates["words only"], 1),
        **_reason(found, "datatrove"),
    )


def whole(request: Request) -> Iterator[Row]:
    """CPU seconds of the whole, a row a peer."""
    texts = dedup_inputs.planted(request.words(), request.documents)
    sides: dict[str, dedup_peers.Side | str] = {
        "ours": dedup_peers.ours("whole"),
        "words only": dedup_peers.ours("words"),
    }
    for name in request.peers:
        sides[name] = (
            dedup_peers.datatrove() if name == "datatrove" else dedup_peers.installed(name, request.peers_folder)
        )
    found = _raced(request, sides, texts)
    ours, words = _measured(found, "ours"), _measured(found, "words only")
    alone = words.cpu + ours.cpu - ours.more["seconds"]["signals"]
    of_ours = asdict(dedup_inputs.judge(texts, set(ours.more["removed"])))
    for name in request.peers or ("none",):
        peer = found.get(name)
        figures = peer if isinstance(peer, Figures) else None
        of_peer = None if figures is None else asdict(dedup_inputs.judge(texts, set(figures.more["removed"])))
        yield row(
            "whole",
            ours.cpu,
            None if figures is None else figures.cpu,
            "s cpu",
            _described(texts),
            less=True,
            peer_name=name,
            steps=ours.more["seconds"],
            alone=round(alone, 3),
            result=of_ours,
            peer_result=of_peer,
            peak_mb=round(ours.peak_mb),
            peer_peak_mb=None if figures is None else round(figures.peak_mb),
            **_reason(found, name),
        )


def growth(request: Request) -> Iterator[Row]:
    """CPU milliseconds a document at growing sizes."""
    best: dict[int, Figures] = {}
    for _ in range(request.rounds):
        for size in request.sizes:
            folder = request.folder / f"growth-{size}"
            dedup_peers.run(dedup_peers.ours("prepare"), str(size), folder)
            found = dedup_peers.run(dedup_peers.ours("growth"), str(size), folder, keep=True)
            if size not in best or found.cpu < best[size].cpu:
                best[size] = found
    first = min(best)
    for size, found in best.items():
        each, at_first = found.cpu / size, best[first].cpu / first
        yield row(
            "growth",
            1000 * each,
            None,
            "ms cpu a document",
            f"{size} made-up documents",
            less=True,
            times_the_smallest=round(each / at_first, 2),
            peak_mb=round(found.peak_mb),
            steps=found.more["seconds"],
            removed=found.more["documents_removed"],
        )


def truth(request: Request) -> Iterator[Row]:
    """Recall and precision; the peer is the truth."""
    documents = min(request.documents, 5000)
    texts = dedup_inputs.graded(request.words(), documents)
    ours = _measured(_raced(request, {"ours": dedup_peers.ours("whole")}, texts, rounds=1), "ours")
    found = dedup_inputs.truth(texts, ours.more["removed"], SIMILARITY, CONTAINMENT)
    given = f"{documents} documents, half of them copies with 1 to 24 edits"
    about = {"pairs": found["pairs"], "removed": found["removed"]}
    yield row("recall", found["recall"], 1.0, f"share of pairs at {SIMILARITY}", given, less=False, **about)
    yield row("precision", found["precision"], 1.0, "share of removals", given, less=False, **about)


ROWS: dict[str, Callable[[Request], Iterator[Row]]] = {
    "signatures": signatures,
    "whole": whole,
    "growth": growth,
    "truth": truth,
}


def _raced(
    request: Request,
    sides: Mapping[str, dedup_peers.Side | str],
    texts: list[dedup_inputs.Text],
    rounds: int | None = None,
) -> dict[str, Figures | str]:
    # In a folder of its own, for datatrove reads by folder and pattern.
    documents = request.folder / "documents" / "documents.jsonl"
    documents.parent.mkdir(parents=True, exist_ok=True)
    dedup_inputs.write_texts(texts, documents)
    return dedup_peers.race(sides, str(documents), request.folder / "sides", rounds or request.rounds)


def _measured(found: Mapping[str, Figures | str], name: str) -> Figures:
    figures = found[name]
    if isinstance(figures, str):
        raise SystemExit(figures)
    return figures


def _reason(found: Mapping[str, Figures | str], name: str) -> Row:
    why = found.get(name, "not asked for")
    return {"peer_no_figure": why} if isinstance(why, str) else {}


def _described(texts: list[dedup_inputs.Text]) -> str:
    size = sum(len(text.text) for text in texts)
    return f"{len(texts)} documents of {size // len(texts)} characters, {len({text.group for text in texts})} texts"


def main() -> None:
    """Print the rows that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, nargs="+", default=[], metavar="FILE")
    parser.add_argument("--only", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW")
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--peers", nargs="*", choices=["datatrove", *dedup_peers.PACKAGES], default=None)
    parser.add_argument(
        "--peers-folder", type=Path, default=Path(tempfile.gettempdir(), "marin-bench-dedup-peers"), metavar="FOLDER"
    )
    options = parser.parse_args()
    peers = ("datatrove", *dedup_peers.PACKAGES) if options.peers is None else tuple(options.peers)
    with tempfile.TemporaryDirectory() as folder:
        request = Request(
            tuple(options.text), options.documents, tuple(options.sizes), options.rounds, peers, options.peers_folder,
            Path(folder),
        )  # fmt: skip
        for name in options.only:
            for line in ROWS[name](request):
                print(json.dumps(line, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
