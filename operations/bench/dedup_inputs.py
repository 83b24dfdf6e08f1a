"""Documents for the dedup benchmark, with copies whose originals are known, and the truth by comparing all pairs.

Every random choice comes from `random.Random(seed)`, so that the same files and numbers give the same documents.
"""

from __future__ import annotations

import io
import json
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LEAST_WORDS, MOST_WORDS = 150, 400


@dataclass(frozen=True)
class Text:
    """A document of the benchmark.

    Attributes:
        id: its id.
        text: its text.
        group: documents of one group were made from one text, and one of them should stay.
    """

    id: str
    text: str
    group: int


@dataclass(frozen=True)
class Outcome:
    """What a removal did to the groups.

    Attributes:
        removed: documents removed.
        recall: share of the documents that have to go, of which as many as a group has beyond the first.
        lost: groups of which nothing stayed.
    """

    removed: int
    recall: float
    lost: int


def words_of(files: Sequence[Path]) -> list[str]:
    """All words of the texts of files: JSON lines with `text`, or plain text; either may be compressed by zstd."""
    return [word for path in files for text in _texts(path) for word in text.split()]


def _texts(path: Path) -> Iterator[str]:
    data = path.read_bytes()
    if path.suffix == ".zst":
        import zstandard

        with zstandard.ZstdDecompressor().stream_reader(data) as stream:
            data = stream.read()
    if ".jsonl" in path.name:
        yield from (json.loads(line)["text"] for line in io.StringIO(data.decode()))
    else:
        yield data.decode()


def cut(words: Sequence[str], seed: int) -> Iterator[list[str]]:
    """Documents one after the other, each of as many words as is drawn."""
    draw, at = random.Random(seed), 0
    while True:
        size = draw.randint(LEAST_WORDS, MOST_WORDS)
        if at + size > len(words):
            return
        yield list(words[at : at + size])
        at += size


def planted(words: Sequence[str], documents: int, seed: int = 0) -> list[Text]:
    """Documents cut from words: 70% of their own, 8% exact copies up to case and white space, 12% near copies with
    2 to 6 words replaced, and 10% near copies of one text.

    Raises:
        SystemExit: there are too few words.
    """
    draw = random.Random(seed)
    own = documents - sum(int(documents * share) for share in (0.08, 0.12, 0.1))
    texts = _first(cut(words, seed), own)
    found = [(text, number) for number, text in enumerate(texts)]
    for _ in range(int(documents * 0.08)):
        group = draw.randrange(1, own)
        found.append((draw.choice([str.upper, str.lower, str])(" \n ".join(texts[group])).split(" "), group))
    for _ in range(int(documents * 0.12)):
        group = draw.randrange(1, own)
        found.append((edited(texts[group], draw.randint(2, 6), words, draw), group))
    for _ in range(int(documents * 0.1)):
        found.append((edited(texts[0], draw.randint(0, 4), words, draw), 0))
    draw.shuffle(found)
    return [Text(f"{number:08d}", " ".join(text), group) for number, (text, group) in enumerate(found)]


def graded(words: Sequence[str], documents: int, seed: int = 1) -> list[Text]:
    """Half of the documents are cut from words, the others are copies of them with 1 to 24 edits: a word is replaced,
    left out or put in, so that similarities lie anywhere between a third and one."""
    draw = random.Random(seed)
    texts = _first(cut(words, seed), documents - documents // 2)
    found = [(text, number) for number, text in enumerate(texts)]
    for number in range(documents // 2):
        copy = list(texts[number])
        for _ in range(draw.randint(1, 24)):
            at = draw.randrange(len(copy))
            copy[at : at + draw.randint(0, 1)] = draw.choices(words, k=draw.randint(0, 1))
        found.append((copy, number))
    draw.shuffle(found)
    return [Text(f"{number:08d}", " ".join(text), group) for number, (text, group) in enumerate(found)]


def edited(text: Sequence[str], edits: int, words: Sequence[str], draw: random.Random) -> list[str]:
    """A text with so many of its words replaced by others of the corpus."""
    copy = list(text)
    for at in draw.sample(range(len(copy)), edits):
        copy[at] = draw.choice(words)
    return copy


def _first(texts: Iterator[list[str]], count: int) -> list[list[str]]:
    found = [text for text, _ in zip(texts, range(count), strict=False)]
    if len(found) < count:
        raise SystemExit(
            f"the texts give {len(found)} documents of {LEAST_WORDS} to {MOST_WORDS} words, not {count}; name more "
            "files with --text, or ask for fewer documents"
        )
    return found


def write_texts(texts: Sequence[Text], path: Path) -> None:
    """The documents as JSON lines with `id` and `text`."""
    path.write_text("".join(json.dumps({"id": text.id, "text": text.text}) + "\n" for text in texts))


def judge(texts: Sequence[Text], removed: set[str]) -> Outcome:
    """How well a removal kept one document of each group; which one is all the same."""
    sizes: dict[int, int] = defaultdict(int)
    stayed: dict[int, int] = defaultdict(int)
    for text in texts:
        sizes[text.group] += 1
        stayed[text.group] += text.id not in removed
    surplus = sum(size - 1 for size in sizes.values())
    missed = sum(max(0, stayed[group] - 1) for group in sizes)
    return Outcome(
        removed=len(removed),
        recall=round(1 - missed / max(1, surplus), 4),
        lost=sum(not stayed[group] for group in sizes),
    )


def grams(text: str, size: int) -> set[str]:
    """Distinct word n-grams of a text as the benchmark reads it: letters and digits of pieces between white space, in
    lower case. It shares no code with what it judges."""
    words = [word for piece in text.lower().split() if (word := "".join(filter(str.isalnum, piece)))]
    return {" ".join(words[at : at + size]) for at in range(max(1, len(words) - size + 1))} if words else set()


def similar_pairs(texts: Sequence[Text], least: float, size: int = 5) -> list[tuple[str, str, float]]:
    """All pairs of documents whose Jaccard similarity of n-grams is at least so much: every pair is compared.

    The number of n-grams that two documents share is the product of their rows in the table of documents and n-grams.
    """
    import numpy as np
    from scipy.sparse import csr_array

    numbers: dict[str, int] = {}
    columns = [[numbers.setdefault(gram, len(numbers)) for gram in grams(text.text, size)] for text in texts]
    counts = np.array([len(row) for row in columns], np.int64)
    flat = np.array([number for row in columns for number in row], np.int64)
    starts = np.concatenate([[0], np.cumsum(counts)])
    table = csr_array((np.ones(len(flat), np.int32), flat, starts), shape=(len(texts), len(numbers)))
    shared = (table @ table.T).tocoo()
    pairs = []
    for one, other, both in zip(shared.row.tolist(), shared.col.tolist(), shared.data.tolist(), strict=True):
        similarity = both / (counts[one] + counts[other] - both)
        if one < other and similarity >= least:
            pairs.append((texts[one].id, texts[other].id, float(similarity)))
    return pairs


def truth(texts: Sequence[Text], removed: Mapping[str, str], least: float, containment: float) -> dict[str, Any]:
    """Recall and precision of a removal that names the kept document of each removed one.

    Recall is the share of pairs of at least the similarity of which not both stayed. Precision is the share of
    removed documents of whose distinct 3-grams the kept one has at least the share `containment`.
    """
    pairs = similar_pairs(texts, least)
    found = sum(one in removed or other in removed for one, other, _ in pairs)
    by_id = {text.id: text.text for text in texts}
    right = 0
    for gone, kept in removed.items():
        own = grams(by_id[gone], 3)
        right += kept not in removed and len(own & grams(by_id[kept], 3)) >= containment * len(own)
    return {
        "pairs": len(pairs),
        "recall": round(found / max(1, len(pairs)), 4),
        "removed": len(removed),
        "precision": round(right / max(1, len(removed)), 4),
    }
