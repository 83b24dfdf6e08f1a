"""Text features against a plain reading of the published rules."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin.data.filtering.config import DUPLICATE_N_GRAMS, TOP_N_GRAMS, LanguageConfig, Rules
from marin.data.filtering.features import FEATURE_COLUMNS, measure
from marin.data.filtering.ngrams import WordRuns, _repeated, repetition
from marin.data.filtering.rules import REASONS, failed_rules
from marin.data.filtering.splitting import split_piece
from marin.data.filtering.words import WordTable

TABLE = WordTable()


def top_share(words: list[str], n: int, size: int) -> float:
    grams = Counter(" ".join(words[at : at + n]) for at in range(len(words) - n + 1))
    if not grams:
        return 0.0
    gram, count = grams.most_common(1)[0]
    return min(1.0, len(gram) * count / size)


def repeated_share(words: list[str], n: int, size: int) -> float:
    seen: set[tuple[str, ...]] = set()
    characters = at = 0
    while at < len(words) - n + 1:
        gram = tuple(words[at : at + n])
        if gram in seen:
            characters += sum(map(len, gram))
            at += n
        else:
            seen.add(gram)
            at += 1
    return min(1.0, characters / size)


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 120), st.integers(1, 6))
def test_n_gram_shares_equal_those_of_the_step_by_step_rules(seed: int, length: int, vocabulary: int) -> None:
    draw = random.Random(seed)
    words = [draw.choice(["the", "a", "river", "stone", "kettle", "boat"][:vocabulary]) for _ in range(length)]
    text = " ".join(words)
    columns = measure(text, TABLE).columns
    size = max(1, len(text))
    for n in TOP_N_GRAMS:
        assert columns[f"top_{n}_gram"] == pytest.approx(top_share(words, n, size))
    for n in DUPLICATE_N_GRAMS:
        assert columns[f"duplicate_{n}_grams"] == pytest.approx(repeated_share(words, n, size))


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=300))
def test_any_text_has_every_feature_and_every_reason_is_a_documented_one(text: str) -> None:
    columns = measure(text, TABLE).columns
    assert set(columns) == set(FEATURE_COLUMNS)
    for name, kind in FEATURE_COLUMNS.items():
        assert isinstance(columns[name], kind), name
    row = columns | {"language": "en", "language_score": 0.9, "url_reason": None}
    reasons = failed_rules(row, Rules(), LanguageConfig())
    assert reasons == sorted(set(reasons), key=REASONS.index)
    assert bool(reasons)  # nothing of 300 characters has fifty words in five sentences by chance


def test_places_and_word_numbers_that_fill_a_key_are_told_apart_as_small_ones_are() -> None:
    draw = random.Random(4)
    words = np.array([draw.randint(0, 5) for _ in range(300)], np.int64)
    small, large = WordRuns(words, np.ones(300, np.int64), np.array([0, 120, 300])), words * (1 << 36) + 7
    one = repetition(small, np.array([1, 1]))
    other = repetition(WordRuns(large, small.lengths, small.bounds), np.array([1, 1]))
    assert all(np.array_equal(one[name], other[name]) for name in one)
    grams = _repeated(np.arange(299), words[:-1], words[1:], np.zeros(300, np.int64))
    shifted = _repeated(np.arange(299), words[:-1] << 25, words[1:] << 30, np.zeros(300, np.int64))
    assert np.array_equal(grams.places, shifted.places)
    assert np.array_equal(grams.groups, shifted.groups)


def test_counts_are_those_of_a_text_that_can_be_counted_by_hand() -> None:
    text = (
        '- One two three.\n\n\n- One two three.\nMore words follow here: see the river...\nIs it? Yes. "No." he said!\n'
    )
    columns = measure(text, TABLE).columns
    assert columns["lines"] == 4
    assert columns["bullet_lines"] == 0.5
    assert columns["ellipsis_lines"] == 0.25
    assert columns["duplicate_lines"] == 0.25
    assert columns["duplicate_paragraphs"] == 0.0
    assert columns["terminal_lines"] == 1.0
    assert columns["sentences"] == 1 + 1 + 1 + 4
    assert columns["stop_words"] == 1
    words = [word for piece in text.split() for word in split_piece(piece)]
    assert columns["words"] == len(words)
    assert columns["line_breaks_per_word"] == pytest.approx(3 / len(words))


def test_lines_that_c4_would_remove_hold_no_sentences() -> None:
    text = (
        "Please enable JavaScript to go on. Thanks.\nTwo words.\nWe use cookies here. Really.\nThis line counts. Twice."
    )
    assert measure(text, TABLE).columns["sentences"] == 2


@given(st.integers(0, 5), st.sampled_from(["\n", "\r\n", "\n \t\n"]))
def test_blank_lines_change_no_feature(count: int, blank: str) -> None:
    lines = ["The river had risen over the stones.", "A ferry crew waited for the light.", "- It came late."]
    plain = measure("\n".join(lines), TABLE).columns
    padded = measure(blank * count + f"\n{blank * count}".join(lines) + blank * count, TABLE).columns
    paragraph_columns = {"duplicate_paragraphs", "duplicate_paragraph_characters"}
    assert {k: v for k, v in plain.items() if k not in paragraph_columns} == {
        k: v for k, v in padded.items() if k not in paragraph_columns
    }


CHINESE = (
    "清晨的河面上还有薄雾，渡船的人已经在岸边等着天亮。老测量员带着木尺和地图，沿石阶慢慢走下来，说昨夜水涨了两尺。"
    "没有人相信那座旧桥还撑得住，可是三辆马车竟然平安过去了。钟声第二次敲响时，港口的引水员合上账本，出门去看船只怎么样。"
    "邻居帮忙把缆绳系好，只有一条小船折断了桅杆。下午雨停了，孩子们在市场门口捡到几只玻璃罐，里面装着去年秋天的干梨。"
)
THAI = (
    "เช้าวันนั้นหมอกยังปกคลุมแม่น้ำ คนเรือข้ามฟากนั่งรอแสงแรกอยู่ริมตลิ่ง.\n"
    "ช่างสำรวจชราถือไม้วัดกับแผนที่เดินลงบันไดหินช้าๆ และบอกว่าเมื่อคืนน้ำขึ้นสองศอก.\n"
    "ไม่มีใครเชื่อว่าสะพานเก่าจะทนไหว แต่เกวียนสามเล่มก็ผ่านไปได้อย่างปลอดภัย.\n"
    "พอระฆังดังครั้งที่สอง นายท่าปิดสมุดบัญชีแล้วออกไปดูเรือทั้งหลาย.\n"
    "บ่ายนั้นฝนหยุด เด็กเก็บขวดแก้วหน้าตลาดได้หลายใบ ข้างในมีลูกแพร์แห้งของปีก่อน.\n"
)


@pytest.mark.parametrize(("language", "text"), [("zh", CHINESE), ("th", THAI)])
def test_prose_in_scripts_without_spaces_passes_the_rules_for_words(language: str, text: str) -> None:
    columns = measure(text, TABLE).columns
    assert columns["unspaced"]
    row = columns | {"language": language, "language_score": 0.9, "url_reason": None}
    assert failed_rules(row, Rules(), LanguageConfig(keep=())) == []
