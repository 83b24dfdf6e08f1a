"""datatrove's own filters as judge: its words, its order, its decisions.

The filters run as in a FineWeb pipeline, one after the other on the text that the one before left (C4's rewrites it),
until one drops the document. They take every document for English and are twenty times slower than the shared pass.

Imports datatrove; import this module inside step bodies only.
"""

from __future__ import annotations

from typing import Any

from datatrove.data import Document
from datatrove.pipeline.filters import (
    C4QualityFilter,
    FineWebQualityFilter,
    GopherQualityFilter,
    GopherRepetitionFilter,
)

from marin.data.filtering.config import (
    DUPLICATE_N_GRAMS,
    TOP_N_GRAMS,
    LineRules,
    RepetitionRules,
    Rules,
    SentenceRules,
    WordRules,
)

_REASONS = {
    "dup_line_frac": "gopher_duplicate_lines",
    "dup_para_frac": "gopher_duplicate_paragraphs",
    "dup_line_char_frac": "gopher_duplicate_line_characters",
    "dup_para_char_frac": "gopher_duplicate_paragraph_characters",
    **{f"top_{size}_gram": f"gopher_top_{size}_gram" for size in TOP_N_GRAMS},
    **{f"duplicated_{size}_n_grams": f"gopher_duplicate_{size}_grams" for size in DUPLICATE_N_GRAMS},
    "gopher_short_doc": "gopher_few_words",
    "gopher_long_doc": "gopher_many_words",
    "gopher_below_avg_threshold": "gopher_short_words",
    "gopher_above_avg_threshold": "gopher_long_words",
    "gopher_too_many_hashes": "gopher_hashes",
    "gopher_too_many_ellipsis": "gopher_ellipses",
    "gopher_too_many_bullets": "gopher_bullet_lines",
    "gopher_too_many_end_ellipsis": "gopher_ellipsis_lines",
    "gopher_below_alpha_threshold": "gopher_few_alphabetic_words",
    "gopher_enough_stop_words": "gopher_few_stop_words",
    "lorem_ipsum": "c4_lorem_ipsum",
    "curly_bracket": "c4_curly_bracket",
    "too_few_sentences": "c4_few_sentences",
    "line_punct_ratio": "fineweb_unterminated_lines",
    "short_line_ratio": "fineweb_short_lines",
    "char_dup_ratio": "fineweb_duplicate_lines",
    "list_ratio": "fineweb_line_breaks",
    "empty": "empty",
}
"""datatrove's reasons in the words of ``marin.data.filtering.rules.REASONS``."""


class ReferenceJudge:
    """Judges texts by datatrove's filters.

    Args:
        rules: thresholds; a group that is None is not applied. datatrove takes a threshold of zero for no threshold.
    """

    def __init__(self, rules: Rules) -> None:
        self._filters: list[Any] = [
            *([_repetition(rules.repetition)] if rules.repetition else []),
            *([_words(rules.words)] if rules.words else []),
            *([_sentences(rules.sentences)] if rules.sentences else []),
            *([_lines(rules.lines)] if rules.lines else []),
        ]

    def reasons(self, text: str) -> list[str]:
        """The reason of the first filter that drops a text, or nothing."""
        if not text.strip():
            return ["empty"]
        document = Document(text=text, id="")
        for one in self._filters:
            try:
                verdict = one.filter(document)
            except ZeroDivisionError:
                # A text of signs that are no words to its tokenizer, where no rule asks for a number of words.
                return ["empty"]
            if verdict is not True:
                return [_REASONS[verdict[1]]]
        return []


def _repetition(limits: RepetitionRules) -> GopherRepetitionFilter:
    return GopherRepetitionFilter(
        dup_line_frac=limits.duplicate_lines,
        dup_para_frac=limits.duplicate_paragraphs,
        dup_line_char_frac=limits.duplicate_line_characters,
        dup_para_char_frac=limits.duplicate_paragraph_characters,
        top_n_grams=tuple(sorted(limits.top_n_grams)),
        dup_n_grams=tuple(sorted(limits.duplicate_n_grams)),
    )


def _words(limits: WordRules) -> GopherQualityFilter:
    return GopherQualityFilter(
        min_doc_words=limits.minimum_words,
        max_doc_words=limits.maximum_words,
        min_avg_word_length=limits.minimum_mean_length,
        max_avg_word_length=limits.maximum_mean_length,
        max_symbol_word_ratio=limits.maximum_symbols,
        max_bullet_lines_ratio=limits.maximum_bullet_lines,
        max_ellipsis_lines_ratio=limits.maximum_ellipsis_lines,
        max_non_alpha_words_ratio=limits.minimum_alphabetic_words,
        min_stop_words=limits.minimum_stop_words,
    )


def _sentences(limits: SentenceRules) -> C4QualityFilter:
    return C4QualityFilter(
        filter_no_terminal_punct=limits.terminal_punctuation,
        min_num_sentences=limits.minimum_sentences,
        filter_lorem_ipsum=limits.lorem_ipsum,
        filter_curly_bracket=limits.curly_brackets,
    )


def _lines(limits: LineRules) -> FineWebQualityFilter:
    return FineWebQualityFilter(
        line_punct_thr=limits.minimum_terminal_lines,
        short_line_thr=limits.maximum_short_lines,
        char_duplicates_ratio=limits.duplicate_line_characters,
        new_line_ratio=limits.maximum_line_breaks,
    )
