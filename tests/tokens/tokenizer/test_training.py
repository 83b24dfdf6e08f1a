from __future__ import annotations

import json
import random
from collections import Counter

import pytest

from marin.data.documents.artifacts import Documents
from marin.data.documents.schema import Document
from marin.execution import StepError, materialise
from marin.tokens.tokenizer.artifacts import TOKENIZER_FILE, Tokenizer
from marin.tokens.tokenizer.codec import load_codec
from marin.tokens.tokenizer.config import SpecialTokens, TokenizerConfig
from marin.tokens.tokenizer.steps import train_tokenizer
from marin.tokens.tokenizer.training import Sample, document_rank, draw_sample, train_bpe
from tests.tokens.building import SMALL_TOKENIZER, prose, written_documents


def plain_bpe(texts: list[str], merges: int) -> list[tuple[bytes, bytes]]:
    """Merges of words of letters by counting all pairs anew each time; ties go to the pair of least ids."""
    words = Counter(word for text in texts for word in text.split())
    pieces = {word: [bytes([value]) for value in word.encode()] for word in words}
    ids = {bytes([value]): value for value in range(256)}
    learned = []
    for _ in range(merges):
        pairs: Counter[tuple[bytes, bytes]] = Counter()
        for word, count in words.items():
            for pair in zip(pieces[word], pieces[word][1:], strict=False):
                pairs[pair] += count
        best = min(pairs, key=lambda pair: (-pairs[pair], ids[pair[0]], ids[pair[1]]))
        learned.append(best)
        ids[best[0] + best[1]] = len(ids)
        for word, parts in pieces.items():
            merged = []
            for part in parts:
                if merged and (merged[-1], part) == best:
                    merged[-1] += part
                    continue
                merged.append(part)
            pieces[word] = merged
    return learned


def test_merges_are_those_of_a_plain_implementation():
    generator = random.Random(0)
    words = ["".join(generator.choice("abcd") for _ in range(generator.randint(2, 7))) for _ in range(300)]
    config = TokenizerConfig(vocab_size=256 + 3 + 40, special=SpecialTokens(reserved=0), split_pattern=r"\s+")
    merges = json.loads(train_bpe(words, config))["model"]["merges"]
    assert [tuple(part.encode() for part in pair) for pair in merges] == plain_bpe(words, 40)


def test_the_sample_depends_on_the_set_of_documents_alone():
    documents = [
        Document(f"{index:04x}", prose(index, 20 + index % 50), "", ("a", "b")[index % 2]) for index in range(200)
    ]
    config = TokenizerConfig(sample_bytes=9_000)
    drawn = []
    for order in (documents, documents[::-1], sorted(documents, key=lambda item: item.text)):
        drawn.append(draw_sample(order, config, ["a", "b"])[""].texts)
    assert drawn[0] == drawn[1] == drawn[2]
    assert sum(len(text.encode()) for _, text in drawn[0]) <= 9_000
    ranks = sorted((document_rank(item.id, 0), item.id) for item in documents)
    assert {item for item, _ in drawn[0]} == {item for _, item in ranks[: len(drawn[0])]}


def test_a_document_larger_than_the_budget_ends_the_sample_in_every_order():
    for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2]):
        sample = Sample(budget=10)
        for index in order:
            sample.offer(index, str(index), ["aaaa", "b" * 20, "c"][index])
        assert sample.texts == [("0", "aaaa")]


def test_source_weights_share_the_budget_and_name_unknown_sources():
    documents = [Document(f"{index:04x}", "x" * 100, "", ("a", "b")[index % 2]) for index in range(200)]
    config = TokenizerConfig(sample_bytes=4_000, source_weights={"a": 3.0, "b": 1.0})
    samples = draw_sample(documents, config, ["a", "b"])
    assert (samples["a"].size, samples["b"].size) == (3_000, 1_000)
    with pytest.raises(ValueError, match="'b' has no weight"):
        draw_sample(documents, TokenizerConfig(source_weights={"a": 1.0}), ["a", "b"])
    with pytest.raises(ValueError, match="'c' is not a source"):
        draw_sample(documents, TokenizerConfig(source_weights={"a": 1.0, "b": 1.0, "c": 1.0}), ["a", "b"])


def test_the_step_publishes_a_tokenizer_and_its_report(tokenizer: Tokenizer):
    assert tokenizer.real_vocab_size <= 400
    assert tokenizer.vocab_size % 16 == 0
    assert 0 <= tokenizer.vocab_size - tokenizer.real_vocab_size < 16
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id) == (0, 1, 2)
    assert tokenizer.file_info(TOKENIZER_FILE).sha256 == tokenizer.sha256
    report = tokenizer.read_json("report.json")
    assert {(row["source"], row["split"]) for row in report["sources"]} == {
        (source, split) for source in ("docs", "web") for split in ("train", "validation")
    }
    codec = load_codec(tokenizer)
    for row in report["sources"]:
        assert row["bytes_per_token"] == row["bytes"] / row["tokens"] > 1.5
    assert report["longest_tokens"][0]["bytes"] == max(
        len(codec.token_bytes(token)) for token in range(codec.real_vocab_size) if token not in codec.special_ids
    )
    assert tokenizer.read("report.html").startswith(b"<!doctype html>")


def test_validation_documents_do_not_train_the_tokenizer(tokens_prefix, corpus: Documents, tokenizer: Tokenizer):
    train_bytes = sum(shard.text_bytes for shard in corpus.select(split="train"))
    assert tokenizer.trained_bytes == train_bytes
    other = written_documents((("docs", "validation", 0, prose(1, 50)),), 1000)
    with pytest.raises(StepError, match="no text to train"):
        materialise(train_tokenizer(other, SMALL_TOKENIZER), prefix=str(tokens_prefix))


def test_config_errors_name_the_field():
    for change, text in (
        ({"pad_to_multiple": 0}, "tokenizer.pad_to_multiple is 0"),
        ({"split_pattern": ""}, "split_pattern is empty"),
        ({"source_weights": {"a": float("nan")}}, r"source_weights\['a'\] is nan"),
        ({"source_weights": {"a": 0.0}}, "all zero"),
        ({"on_shortfall": "ignore"}, "on_shortfall is 'ignore'"),
    ):
        with pytest.raises(ValueError, match=text):
            TokenizerConfig(**change)
    with pytest.raises(ValueError, match="named twice"):
        SpecialTokens(eos="<|bos|>")


@pytest.mark.parametrize(("text", "kept"), [("x" * 50, "x" * 10), ("\u65e5" * 50, "\u65e5" * 3)])
def test_the_beginning_of_a_document_larger_than_the_budget_is_a_sample(text: str, kept: str):
    sample = Sample(budget=10)
    for rank in (7, 5, 9):
        sample.offer(rank, str(rank), text)
    assert sample.texts[0] == ("5", kept)
    assert sample.size == sum(len(text.encode()) for _, text in sample.texts) <= 10
    nothing = Sample(budget=0)
    nothing.offer(5, "5", text)
    assert (nothing.texts, nothing.seen) == ([], 1)
