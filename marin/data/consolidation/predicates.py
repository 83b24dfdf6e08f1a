"""What a reason was decided by: the signal column that was looked at, and the limit that it broke."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marin.data.filtering.config import DUPLICATE_N_GRAMS, TOP_N_GRAMS, LanguageConfig, Rules


@dataclass(frozen=True)
class Predicate:
    """A comparison of a column with a limit.

    Attributes:
        column: signal column.
        limit: the setting that holds the limit, from the policy or the signals down, such as
            ``rules.words.minimum_words``; an n-gram size in brackets picks from pairs. ``""`` where it is no number.
        breaks: how a value that fails stands to the limit.
    """

    column: str
    limit: str = ""
    breaks: str = ""

    def bound(self, rules: Rules, language: LanguageConfig) -> Any:
        """The limit's value; None when there is none, or its group of rules is off."""
        if not self.limit:
            return None
        path, _, size = self.limit.rstrip("]").partition("[")
        value: Any = {"rules": rules, "language": language}
        for name in path.split("."):
            value = value[name] if isinstance(value, dict) else getattr(value, name)
            if value is None:
                return None
        return dict(value).get(int(size)) if size else value


def _repeats(what: str) -> Predicate:
    return Predicate(f"duplicate_{what}", f"rules.repetition.duplicate_{what}", ">")


def _words(column: str, limit: str, breaks: str) -> Predicate:
    return Predicate(column, f"rules.words.{limit}", breaks)


PREDICATES: dict[str, Predicate] = {
    "empty": Predicate("words", "", ""),
    **{
        f"url_{part}": Predicate("url_reason")
        for part in ("domain", "subdomain", "listed", "banned_word", "soft_words", "banned_part")
    },
    "language_unknown": Predicate("language"),
    "language_other": Predicate("language", "language.keep", "not in"),
    "language_uncertain": Predicate("language_score", "language.minimum_score", "<"),
    "unmeasured": Predicate("language"),
    **{
        f"gopher_duplicate_{what}": _repeats(what)
        for what in ("lines", "paragraphs", "line_characters", "paragraph_characters")
    },
    **{
        f"gopher_top_{n}_gram": Predicate(f"top_{n}_gram", f"rules.repetition.top_n_grams[{n}]", ">")
        for n in TOP_N_GRAMS
    },
    **{
        f"gopher_duplicate_{n}_grams": Predicate(
            f"duplicate_{n}_grams", f"rules.repetition.duplicate_n_grams[{n}]", ">"
        )
        for n in DUPLICATE_N_GRAMS
    },
    "gopher_few_words": _words("spoken_words", "minimum_words", "<"),
    "gopher_many_words": _words("spoken_words", "maximum_words", ">"),
    "gopher_short_words": _words("mean_word_length", "minimum_mean_length", "<"),
    "gopher_long_words": _words("mean_word_length", "maximum_mean_length", ">"),
    "gopher_hashes": _words("hashes_per_word", "maximum_symbols", ">"),
    "gopher_ellipses": _words("ellipses_per_word", "maximum_symbols", ">"),
    "gopher_bullet_lines": _words("bullet_lines", "maximum_bullet_lines", ">"),
    "gopher_ellipsis_lines": _words("ellipsis_lines", "maximum_ellipsis_lines", ">"),
    "gopher_few_alphabetic_words": _words("alphabetic_words", "minimum_alphabetic_words", "<"),
    "gopher_few_stop_words": _words("stop_words", "minimum_stop_words", "<"),
    "c4_lorem_ipsum": Predicate("lorem_ipsum"),
    "c4_curly_bracket": Predicate("curly_bracket"),
    "c4_few_sentences": Predicate("sentences", "rules.sentences.minimum_sentences", "<"),
    "fineweb_unterminated_lines": Predicate("terminal_lines", "rules.lines.minimum_terminal_lines", "<"),
    "fineweb_short_lines": Predicate("short_lines", "rules.lines.maximum_short_lines", ">"),
    "fineweb_duplicate_lines": Predicate("duplicate_line_characters", "rules.lines.duplicate_line_characters", ">"),
    "fineweb_line_breaks": Predicate("line_breaks_per_word", "rules.lines.maximum_line_breaks", ">"),
}
"""The predicate behind every reason of the signals."""


def explain(reason: str, row: Mapping[str, Any], rules: Rules | None, language: LanguageConfig | None) -> str:
    """A reason with the value that broke it and, where the settings are known, the limit: ``spoken_words 23 < 50``.

    Args:
        reason: a reason of the signals; of others nothing is known, and the text is empty.
        row: the signal columns.
        rules: the thresholds that were applied, when known.
        language: the languages that were let pass, when known.
    """
    predicate = PREDICATES.get(reason)
    if predicate is None or predicate.column not in row:
        return ""
    column = predicate.column
    if reason == "c4_few_sentences" and rules and rules.sentences and rules.sentences.terminal_punctuation:
        column = "terminal_sentences"
    shown = f"{column} {_shown(row[column])}"
    if rules is None or language is None:
        return shown
    bound = predicate.bound(rules, language)
    return shown if bound is None else f"{shown} {predicate.breaks} {_shown(bound)} ({predicate.limit})"


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
