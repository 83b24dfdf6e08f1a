"""Rules as predicates over feature columns: every reason a document fails, in one documented order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from marin.data.filtering.config import DUPLICATE_N_GRAMS, TOP_N_GRAMS, LanguageConfig, Rules

UNKNOWN_LANGUAGE = "unknown"
"""Language of a text without letters."""

REASONS: tuple[str, ...] = (
    "empty",
    "url_domain",
    "url_subdomain",
    "url_listed",
    "url_banned_word",
    "url_soft_words",
    "url_banned_part",
    "language_unknown",
    "language_other",
    "language_uncertain",
    "unmeasured",
    "gopher_duplicate_lines",
    "gopher_duplicate_paragraphs",
    "gopher_duplicate_line_characters",
    "gopher_duplicate_paragraph_characters",
    *(f"gopher_top_{size}_gram" for size in TOP_N_GRAMS),
    *(f"gopher_duplicate_{size}_grams" for size in DUPLICATE_N_GRAMS),
    "gopher_few_words",
    "gopher_many_words",
    "gopher_short_words",
    "gopher_long_words",
    "gopher_hashes",
    "gopher_ellipses",
    "gopher_bullet_lines",
    "gopher_ellipsis_lines",
    "gopher_few_alphabetic_words",
    "gopher_few_stop_words",
    "c4_lorem_ipsum",
    "c4_curly_bracket",
    "c4_few_sentences",
    "fineweb_unterminated_lines",
    "fineweb_short_lines",
    "fineweb_duplicate_lines",
    "fineweb_line_breaks",
)
"""Every reason of a signal, in the order in which the first one decides where a document is counted."""


def failed_rules(row: Mapping[str, Any], rules: Rules, language: LanguageConfig) -> list[str]:
    """Reasons, in the order of ``REASONS``, for which a document fails; empty when it passes.

    Args:
        row: feature columns (null where they were not measured) with ``language``, ``language_score`` and
            ``url_reason`` (null when the URL passes).
        rules: thresholds.
        language: languages that pass.
    """
    if row["words"] is None:
        # It was left out for its language, which these rules may let pass.
        before = [*([row["url_reason"]] if row["url_reason"] else []), *_language(row, language)]
        return before or ["unmeasured"]
    if not row["words"]:
        return ["empty"]
    return [
        *([row["url_reason"]] if row["url_reason"] else []),
        *_language(row, language),
        *_repetition(row, rules),
        *_words(row, rules),
        *_sentences(row, rules),
        *_lines(row, rules),
    ]


def _language(row: Mapping[str, Any], config: LanguageConfig) -> Iterator[str]:
    if row["language"] == UNKNOWN_LANGUAGE:
        yield "language_unknown"
        return
    if config.keep and row["language"] not in config.keep:
        yield "language_other"
    elif row["language_score"] < config.minimum_score:
        yield "language_uncertain"


def _repetition(row: Mapping[str, Any], rules: Rules) -> Iterator[str]:
    limits = rules.repetition
    if limits is None:
        return
    for name in ("lines", "paragraphs", "line_characters", "paragraph_characters"):
        if row[f"duplicate_{name}"] > getattr(limits, f"duplicate_{name}"):
            yield f"gopher_duplicate_{name}"
    for size, limit in sorted(limits.top_n_grams):
        if row[f"top_{size}_gram"] > limit:
            yield f"gopher_top_{size}_gram"
    for size, limit in sorted(limits.duplicate_n_grams):
        if row[f"duplicate_{size}_grams"] > limit:
            yield f"gopher_duplicate_{size}_grams"


def _words(row: Mapping[str, Any], rules: Rules) -> Iterator[str]:
    limits = rules.words
    if limits is None:
        return
    if row["spoken_words"] < limits.minimum_words:
        yield "gopher_few_words"
    if row["spoken_words"] > limits.maximum_words:
        yield "gopher_many_words"
    if not row["unspaced"] and row["mean_word_length"] < limits.minimum_mean_length:
        yield "gopher_short_words"
    if row["mean_word_length"] > limits.maximum_mean_length:
        yield "gopher_long_words"
    if row["hashes_per_word"] > limits.maximum_symbols:
        yield "gopher_hashes"
    if row["ellipses_per_word"] > limits.maximum_symbols:
        yield "gopher_ellipses"
    if row["bullet_lines"] > limits.maximum_bullet_lines:
        yield "gopher_bullet_lines"
    if row["ellipsis_lines"] > limits.maximum_ellipsis_lines:
        yield "gopher_ellipsis_lines"
    if row["alphabetic_words"] < limits.minimum_alphabetic_words:
        yield "gopher_few_alphabetic_words"
    if row["language"] == "en" and row["stop_words"] < limits.minimum_stop_words:
        yield "gopher_few_stop_words"


def _sentences(row: Mapping[str, Any], rules: Rules) -> Iterator[str]:
    limits = rules.sentences
    if limits is None:
        return
    if limits.lorem_ipsum and row["lorem_ipsum"]:
        yield "c4_lorem_ipsum"
    if limits.curly_brackets and row["curly_bracket"]:
        yield "c4_curly_bracket"
    counted = "terminal_sentences" if limits.terminal_punctuation else "sentences"
    if row[counted] < limits.minimum_sentences:
        yield "c4_few_sentences"


def _lines(row: Mapping[str, Any], rules: Rules) -> Iterator[str]:
    limits = rules.lines
    if limits is None:
        return
    if row["terminal_lines"] < limits.minimum_terminal_lines:
        yield "fineweb_unterminated_lines"
    if row["short_lines"] > limits.maximum_short_lines:
        yield "fineweb_short_lines"
    if row["duplicate_line_characters"] > limits.duplicate_line_characters:
        yield "fineweb_duplicate_lines"
    if row["line_breaks_per_word"] > limits.maximum_line_breaks:
        yield "fineweb_line_breaks"
