"""Tokenizers that were made elsewhere: taken over when they are exact, and compared with in the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Engine

from marin.data.documents.artifacts import Documents
from marin.execution import External, StepError, materialise
from marin.tokens.tokenizer.artifacts import TEMPLATE_FILE, Tokenizer
from marin.tokens.tokenizer.codec import load_codec
from marin.tokens.tokenizer.config import ImportConfig, KnownTokenizer, SpecialTokens, TokenizerConfig
from marin.tokens.tokenizer.steps import import_tokenizer, train_tokenizer
from tests.tokens.building import SMALL_TOKENIZER, prose


def engine(*, normalizer: str = "", special: tuple[str, ...] = ("<s>", "</s>", "<pad>")) -> Engine:
    """A tokenizer as other projects make them: their own special tokens, after the words."""
    made = Engine(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    if normalizer:
        made.normalizer = getattr(normalizers, normalizer)()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made.train_from_iterator(
        [prose(seed, 300) for seed in range(5)],
        trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False),
    )
    made.add_special_tokens(list(special))
    return made


def known(path: Path) -> KnownTokenizer:
    return KnownTokenizer("other", External(str(path), version="1"))


def take_over(path: Path, prefix: Path, **options: str) -> Tokenizer:
    return materialise(import_tokenizer(ImportConfig(known(path), pad_to_multiple=64, **options)), prefix=str(prefix))


def test_a_folder_is_taken_over_with_the_edge_tokens_and_the_template_that_its_settings_name(tmp_path: Path):
    folder = tmp_path / "other"
    folder.mkdir()
    made = engine()
    made.save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<s>", "eos_token": {"content": "</s>", "special": True}, "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps({**settings, "chat_template": "{{ messages }}"}))
    taken = take_over(folder, tmp_path / "prefix")
    assert taken.read("tokenizer.json") == (folder / "tokenizer.json").read_bytes()
    assert (taken.bos_id, taken.eos_id, taken.pad_id) == tuple(map(made.token_to_id, ("<s>", "</s>", "<pad>")))
    assert (taken.real_vocab_size, taken.vocab_size) == (303, 320)
    assert taken.read(TEMPLATE_FILE) == b"{{ messages }}"
    codec = load_codec(taken)
    text = "the river, and </s> the mill"
    assert codec.encode_document(text)[0] == taken.bos_id
    assert codec.encode_document(text).count(taken.eos_id) == 1
    assert codec.decode(codec.encode(text)) == text


def test_a_bare_file_is_taken_over_with_the_edge_tokens_that_are_named(tmp_path: Path):
    path = tmp_path / "tokenizer.json"
    engine(special=("<|end|>",)).save(str(path))
    taken = take_over(path, tmp_path / "prefix", eos="<|end|>")
    assert taken.bos_id is None
    assert taken.pad_id == taken.eos_id == 300
    with pytest.raises(StepError, match=r"names no end-of-document token; say which special token it is"):
        take_over(path, tmp_path / "prefix")
    with pytest.raises(StepError, match=r"'other' .* cannot be used: eos token '</s>' is not a special token"):
        take_over(path, tmp_path / "prefix", eos="</s>")


def test_a_tokenizer_that_changes_text_or_is_none_is_refused(tmp_path: Path):
    path = tmp_path / "tokenizer.json"
    engine(normalizer="NFC").save(str(path))
    assert take_over(path, tmp_path / "zero", eos="</s>").real_vocab_size == 303  # documents are in NFC already
    engine(normalizer="Lowercase").save(str(path))
    with pytest.raises(StepError, match=r"'other' .* is refused: its normalizer Lowercase rewrites text"):
        take_over(path, tmp_path / "one", eos="</s>")
    path.write_text('{"model": 3}')
    with pytest.raises(StepError, match=r"'other' .* cannot be used: it is no tokenizer.json"):
        take_over(path, tmp_path / "two", eos="</s>")
    with pytest.raises(StepError, match=r"config.known.files: there is no file '.*/nowhere.json'"):
        take_over(tmp_path / "nowhere.json", tmp_path / "three", eos="</s>")


@pytest.mark.parametrize(
    ("token", "normalizer"),
    [
        (AddedToken("<think>", special=False, lstrip=True, rstrip=True, normalized=False), ""),
        (AddedToken("u\u0308ber", special=False, normalized=True), "NFC"),
    ],
    ids=["takes the white space around it", "spelled otherwise than documents are"],
)
def test_an_added_token_that_changes_text_is_found(tmp_path: Path, token: AddedToken, normalizer: str):
    made = engine(normalizer=normalizer)
    made.add_tokens([token])
    made.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(StepError, match=r"is refused: the text .* comes back as "):
        take_over(tmp_path / "tokenizer.json", tmp_path / "prefix", eos="</s>")


def test_a_pre_tokenizer_that_leaves_out_text_is_refused(tmp_path: Path):
    made = engine()
    split = pre_tokenizers.Split("\u2603", "removed")
    made.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    made.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(StepError, match="its pre-tokenizer Split leaves out what it splits at"):
        take_over(tmp_path / "tokenizer.json", tmp_path / "prefix", eos="</s>")


def test_the_report_compares_with_known_tokenizers_by_source_language_and_probe(
    tmp_path: Path, corpus: Documents, tokens_prefix: Path
):
    path = tmp_path / "tokenizer.json"
    engine().save(str(path))
    config = TokenizerConfig(
        vocab_size=400, pad_to_multiple=16, special=SpecialTokens(reserved=2), references=(known(path),)
    )
    trained = materialise(train_tokenizer(corpus, config), prefix=str(tokens_prefix))
    alone = materialise(train_tokenizer(corpus, SMALL_TOKENIZER), prefix=str(tokens_prefix))
    assert trained.read("tokenizer.json") == alone.read("tokenizer.json")
    report = trained.read_json("report.json")
    for part, kinds in (("sources", ("source", "split")), ("languages", ("language",)), ("probes", ("probe",))):
        by_kind: dict[tuple[str, ...], dict[str, int]] = {}
        for row in report[part]:
            by_kind.setdefault(tuple(row[name] for name in kinds), {})[row["tokenizer"]] = row["bytes"]
        assert by_kind
        assert all(set(sizes) == {"this", "other"} and len(set(sizes.values())) == 1 for sizes in by_kind.values())
    probes = {(row["probe"], row["tokenizer"]): row for row in report["probes"]}
    other, text = Engine.from_file(str(path)), "def crossings"
    assert {"chinese", "python", "arabic"} <= {probe for probe, _ in probes}
    assert other.encode(text).ids
    assert probes["chinese", "other"]["tokens"] > probes["english", "other"]["tokens"] / 2
    assert b"<h2>On probes</h2>" in trained.read("report.html")


def test_the_chat_template_of_a_trained_tokenizer_lies_beside_it(corpus: Documents, tokens_prefix: Path):
    special = SpecialTokens(reserved=2, chat_template="{% for m in messages %}{{ m.content }}{% endfor %}")
    config = TokenizerConfig(vocab_size=400, pad_to_multiple=16, special=special)
    trained = materialise(train_tokenizer(corpus, config), prefix=str(tokens_prefix))
    assert trained.read(TEMPLATE_FILE).decode() == special.chat_template
