"""Drawing a sample of documents and learning merges from it, the same on every machine."""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from marin.data.documents.schema import Document
from marin.tokens.tokenizer.config import TokenizerConfig


@dataclass
class Sample:
    """The documents with the least hashes that fit a budget; which they are depends on the set of documents alone.

    Attributes:
        budget: most UTF-8 bytes.
        size: bytes held.
        seen: documents offered.
    """

    budget: int
    size: int = 0
    seen: int = 0
    _ceiling: int = 1 << 64
    _heap: list[tuple[int, str, str, int]] = field(default_factory=list)

    def offer(self, rank: int, document_id: str, text: str) -> None:
        """Take the document if it is among the first by rank; of one larger than the whole budget, its beginning."""
        self.seen += 1
        if rank >= self._ceiling or not self.budget:
            return
        size = len(text.encode("utf-8", "replace"))
        if size > self.budget:
            text = text.encode("utf-8", "replace")[: self.budget].decode("utf-8", "ignore")
            size = len(text.encode())
        heapq.heappush(self._heap, (-rank, document_id, text, size))
        self.size += size
        while self.size > self.budget:
            negative, _, _, size = heapq.heappop(self._heap)
            self._ceiling = -negative
            self.size -= size

    @property
    def texts(self) -> list[tuple[str, str]]:
        """(id, text), by id."""
        return sorted((document_id, text) for _, document_id, text, _ in self._heap)


def draw_sample(documents: Iterable[Document], config: TokenizerConfig, sources: Sequence[str]) -> dict[str, Sample]:
    """Samples to train on, by source, or one under ``""`` when the natural shares are asked for.

    Raises:
        ValueError: weights name an unknown source or leave one out.
    """
    if config.source_weights:
        for source in sorted(set(config.source_weights) ^ set(sources)):
            kind = "has no weight" if source in sources else "is not a source of these documents"
            raise ValueError(f"tokenizer.source_weights: {source!r} {kind}; sources are {', '.join(sorted(sources))}")
        total = sum(config.source_weights.values())
        samples = {
            source: Sample(int(config.sample_bytes * weight / total))
            for source, weight in config.source_weights.items()
        }
    else:
        samples = {"": Sample(config.sample_bytes)}
    for document in documents:
        sample = samples[document.source if config.source_weights else ""]
        rank = document_rank(document.id, config.seed)
        sample.offer(rank, document.id, document.text[: config.sample_document_chars])
    return samples


class ReportSamples:
    """Samples of documents of one kind each, filled from documents that pass by.

    Args:
        kind_of: the kind of a document, such as its source and split.
        budget: most bytes of each.
        seed: draws them.
    """

    def __init__(self, kind_of: Callable[[Document], tuple[str, ...]], budget: int, seed: int) -> None:
        self._kind_of = kind_of
        self._budget = budget
        self._seed = seed
        self._samples: dict[tuple[str, ...], Sample] = {}

    def watch(self, documents: Iterable[Document]) -> Iterator[Document]:
        """The same documents, sampled in passing."""
        for document in documents:
            sample = self._samples.setdefault(self._kind_of(document), Sample(self._budget))
            sample.offer(document_rank(document.id, self._seed), document.id, document.text[: self._budget])
            yield document

    @property
    def texts(self) -> dict[tuple[str, ...], list[str]]:
        """Texts by kind, by document id."""
        return {key: [text for _, text in sample.texts] for key, sample in self._samples.items()}


def document_rank(document_id: str, seed: int) -> int:
    """A 64-bit number drawn from a document's id: the order in which samples take documents."""
    key = f"{seed}/{document_id}".encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=8, person=b"marin.sample").digest(), "big")


def train_bpe(texts: Iterable[str], config: TokenizerConfig) -> str:
    """A byte-level BPE tokenizer, as the content of a ``tokenizer.json``.

    The trainer orders equally frequent pairs by their ids, and ids follow from the sorted byte alphabet, so the result
    depends on the multiset of texts only.
    """
    tokenizer = tokenizers.Tokenizer(models.BPE())
    split = pre_tokenizers.Split(tokenizers.Regex(config.split_pattern), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=config.vocab_size,
        min_frequency=config.min_frequency,
        special_tokens=list(config.special.spellings),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        max_token_length=config.max_token_length,
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    if config.special.add_bos and config.special.bos is not None:
        bos = config.special.bos
        tokenizer.post_processor = processors.TemplateProcessing(
            single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, tokenizer.token_to_id(bos))]
        )
    definition: str = tokenizer.to_str(pretty=True)
    size = len(json.loads(definition)["model"]["vocab"])
    if size < config.vocab_size and config.on_shortfall == "error":
        raise ValueError(
            f"tokenizer.vocab_size asks for {config.vocab_size} entries, the text gives {size}; "
            "train on more text, ask for fewer, or set on_shortfall to 'report'"
        )
    return definition
