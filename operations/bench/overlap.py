"""Finding evaluation items in training text, against datatrove: one JSON line a row.

    python operations/bench/overlap.py --text FILE… --items gsm8k.jsonl:question,answer --items lambada.jsonl:text

`--text` is JSON lines with `text`, or plain text, plain or zstd; it is cut into documents of 3,000 characters, and into
some of them an item is planted: the first of its fields, altered as copies on the web are. Rows:

- `cost`: CPU seconds of looking through a MB of text, the index being there. Ours is the words, the n-grams and the
  items of each document; the peer is datatrove's n-gram filter on 13-grams, which names no items and no places.
- `recall`: share of the planted items that are found, for both, with each alteration. Only items whose first field has
  as many words as an n-gram are planted, because the peer knows no shorter ones.
- `false`: documents without a planted item that are said to have one, of all such documents.

Sides take turns, and the best of `--rounds` counts.
"""

from __future__ import annotations

import argparse
import html
import json
import random
import re
import sys
import tempfile
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

import dedup_inputs  # noqa: E402  found beside this script

from marin.data.dedup.config import DecontaminationConfig  # noqa: E402
from marin.data.dedup.overlap.evidence import Evidence  # noqa: E402
from marin.data.dedup.overlap.index import Grams, Item, Owners, index_items  # noqa: E402
from marin.data.dedup.overlap.scan import find_in  # noqa: E402
from marin.data.dedup.overlap.words import WordReader  # noqa: E402
from marin.data.evalsets.files import item_of  # noqa: E402

CHARACTERS = 3_000
CONFIG = DecontaminationConfig()

ALTERATIONS: dict[str, Callable[[str, random.Random], str]] = {
    "none": lambda text, draw: text,
    "capitals": lambda text, draw: text.upper(),
    "white space": lambda text, draw: re.sub(
        r"\s+", lambda found: draw.choice(["  ", "\n", "\n\n", "\t", "\u00a0"]), text
    ),
    "no punctuation": lambda text, draw: re.sub(r"[^\w\s'<>&]", " ", text),
    "typographic quotes": lambda text, draw: text.replace("'", "\u2019").replace('"', "\u201c"),
    "entities": lambda text, draw: html.escape(text).replace("\n", "<br/>"),
    "entities twice": lambda text, draw: html.escape(html.escape(text)),
    "nbsp entities": lambda text, draw: text.replace(" ", "&nbsp;"),
    "decomposed": lambda text, draw: unicodedata.normalize("NFD", text),
    "full width": lambda text, draw: "".join(
        chr(ord(sign) + 0xFEE0) if "!" <= sign <= "~" and sign not in "<>&" else sign for sign in text
    ),
    "soft hyphens": lambda text, draw: re.sub(r"(\w{3})(\w{3})", "\\1\u00ad\\2", text),
    "emphasis": lambda text, draw: re.sub(r"\b(\w{4,})\b(?!')", lambda found: f"**{found.group()}**", text),
}


@dataclass(frozen=True)
class Documents:
    """Texts, and for those with a planted item the alteration and the item's number."""

    texts: list[str]
    planted: dict[int, tuple[str, int]]

    @property
    def megabytes(self) -> float:
        """UTF-8 bytes of all texts."""
        return sum(len(text.encode()) for text in self.texts) / 1e6


def items_in(arguments: Sequence[str]) -> list[Item]:
    """The items of files that are given as PATH:FIELD,FIELD."""
    items: list[Item] = []
    for number, argument in enumerate(arguments):
        path, _, fields = argument.rpartition(":")
        for line, text in enumerate(Path(path).read_text(encoding="utf-8").splitlines()):
            row = json.loads(text)
            item = item_of(str(line), (row[name] for name in fields.split(",")))
            if item is not None:
                items.append(Item(number, item["id"], tuple(item["parts"])))
    return items


def documents_with(words: Sequence[str], items: Sequence[Item], count: int, planted: int) -> Documents:
    """Documents cut from words, with altered items in some."""
    draw = random.Random(5)
    text = " ".join(words)
    texts = [text[at : at + CHARACTERS] for at in range(0, len(text), CHARACTERS)][:count]
    long_enough = [n for n, item in enumerate(items) if len(item.parts[0].split()) >= 2 * CONFIG.n_gram]
    places = draw.sample(range(len(texts)), min(planted, len(texts), len(long_enough)))
    truth: dict[int, tuple[str, int]] = {}
    for turn, (place, item) in enumerate(zip(places, draw.sample(long_enough, len(places)), strict=True)):
        kind = list(ALTERATIONS)[turn % len(ALTERATIONS)]
        own = texts[place]
        at = own.rfind(" ", 0, draw.randrange(1, len(own) + 1)) + 1
        texts[place] = f"{own[:at]}{ALTERATIONS[kind](items[item].parts[0], draw)} {own[at:]}"
        truth[place] = kind, item
    return Documents(texts, truth)


def ours(texts: Sequence[str], grams: Grams, owners: Owners) -> dict[int, set[int]]:
    """Items by document."""
    hits = find_in(texts, WordReader(), grams)
    return {found.row: set(found.items.tolist()) for found in Evidence(owners, hits, []).overlaps(1)}


def datatrove_filter(items: Sequence[Item]) -> Callable[[Sequence[str]], set[int]]:
    """datatrove's filter with an index of the items, as a function from texts to the places of those it drops."""
    from datatrove.data import Document
    from datatrove.pipeline.decont.n_grams import NGramsDecontConfig, NGramsDecontFilter, NGramsDecontIndexer

    config = NGramsDecontConfig(n_grams=CONFIG.n_gram, find_query_ngrams=True)
    block = NGramsDecontFilter(tempfile.mkdtemp(), config=config)
    # The indexer itself asks for a package that only downloads evaluation sets; the filter has all that hashing needs.
    hashes: dict[int, str] = {}
    for item in items:
        for value in NGramsDecontIndexer.compute_hashes(block, "\n".join(item.parts[1:]), item.parts[0]):
            hashes[value] = "items"
    block._index_hashes = hashes
    return lambda texts: {
        place for place, text in enumerate(texts) if block.filter(Document(text=text, id=str(place))) is not True
    }


def rows(documents: Documents, items: Sequence[Item], names: Sequence[str], rounds: int, peer: bool) -> Iterator[Any]:
    """All rows."""
    grams, owners = index_items(names, items, CONFIG)
    theirs = datatrove_filter(items) if peer else None
    seconds: dict[str, list[float]] = {"ours": [], "datatrove": []}
    found: dict[int, set[int]] = {}
    dropped: set[int] = set()
    for _ in range(rounds):
        start = time.process_time()
        found = ours(documents.texts, grams, owners)
        seconds["ours"].append(time.process_time() - start)
        if theirs is not None:
            start = time.process_time()
            dropped = theirs(documents.texts)
            seconds["datatrove"].append(time.process_time() - start)
    size = documents.megabytes
    given = f"{len(documents.texts)} documents, {size:.1f} MB; {len(items)} items, {len(grams.hashes)} n-grams"
    own = min(seconds["ours"]) / size
    other = min(seconds["datatrove"]) / size if peer else None
    yield _row("cost", own, other, "CPU s per MB", given, less=True)
    kinds = {
        kind: [place for place, (own_kind, _) in documents.planted.items() if own_kind == kind] for kind in ALTERATIONS
    }
    hits = {kind: sum(documents.planted[place][1] in found.get(place, ()) for place in kinds[kind]) for kind in kinds}
    their_hits = {kind: sum(place in dropped for place in kinds[kind]) for kind in kinds}
    total = max(1, len(documents.planted))
    yield _row(
        "recall",
        sum(hits.values()) / total,
        sum(their_hits.values()) / total if peer else None,
        "share of planted items",
        given,
        less=False,
        planted={kind: len(places) for kind, places in kinds.items()},
        found=hits,
        **({"found_by_peer": their_hits} if peer else {}),
    )
    clean = len(documents.texts) - len(documents.planted)
    wrong = [len([place for place in told if place not in documents.planted]) for told in (found, dropped)]
    yield _row("false", wrong[0], wrong[1] if peer else None, f"documents of {clean}", given, less=True)


def _row(
    name: str, own: float, peer: float | None, unit: str, given: str, *, less: bool, **more: Any
) -> dict[str, Any]:
    """A line; `ratio` is above 1 where ours is better, null without a peer or where a side is 0."""
    ratio = None if not peer or not own else round(peer / own if less else own / peer, 2)
    told = None if peer is None else round(peer, 4)
    return {"name": name, "ours": round(own, 4), "peer": told, "ratio": ratio, "unit": unit, "input": given} | more


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", nargs="+", type=Path, required=True)
    parser.add_argument("--items", action="append", required=True, help="PATH:FIELD,FIELD, what an item asks first")
    parser.add_argument("--documents", type=int, default=1_000)
    parser.add_argument("--planted", type=int, default=360)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-peer", action="store_true")
    asked = parser.parse_args(arguments)
    items = items_in(asked.items)
    documents = documents_with(dedup_inputs.words_of(asked.text), items, asked.documents, asked.planted)
    for row in rows(documents, items, asked.items, asked.rounds, not asked.no_peer):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
