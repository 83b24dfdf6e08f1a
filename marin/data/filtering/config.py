"""Configuration of signals: what is measured of each document, and which rules judge it.

The defaults are those of the published recipes; each class names its source.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from marin.data.filtering.language_codes import LANGUAGES, likely_code

TOP_N_GRAMS = (2, 3, 4)
"""Sizes of the n-grams whose most frequent one is measured."""

DUPLICATE_N_GRAMS = (5, 6, 7, 8, 9, 10)
"""Sizes of the n-grams whose repetition is measured."""


def _share(owner: object, **fields: float) -> None:
    """Refuse fields that are not shares.

    Raises:
        ValueError: a value is not a number within 0 and 1.
    """
    for name, value in fields.items():
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{type(owner).__name__}.{name} is {value!r}; it is a share and must lie between 0 and 1")


def _n_gram_limits(name: str, limits: Sequence[tuple[int, float]], measured: Sequence[int]) -> None:
    for size, limit in limits:
        if size not in measured or not 0.0 <= limit <= 1.0:
            raise ValueError(
                f"RepetitionRules.{name} holds ({size!r}, {limit!r}); give pairs of an n-gram size out of "
                f"{list(measured)} and a share between 0 and 1"
            )


@dataclass(frozen=True)
class LanguageConfig:
    """Language identification by fastText's lid.176 model.

    FineWeb keeps English above a score of 0.65 (Penedo et al. 2024, https://arxiv.org/abs/2406.17557).

    Attributes:
        keep: codes of languages that pass, of those that the model knows; empty lets every language pass.
        minimum_score: score below which the language counts as uncertain, and the document is dropped.
        window: characters that are looked at first.
        long_window: characters that are looked at when the score of the first ones is within ``margin`` of the
            threshold.
        margin: see ``long_window``.
    """

    keep: tuple[str, ...] = ("en",)
    minimum_score: float = 0.65
    window: int = 500
    long_window: int = 2000
    margin: float = 0.1

    def __post_init__(self) -> None:
        for code in self.keep:
            if code not in LANGUAGES:
                likely = likely_code(code)
                raise ValueError(
                    f"LanguageConfig.keep names {code!r}, which is no code of lid.176; "
                    + (
                        f"did you mean {likely!r} ({LANGUAGES[likely]})?"
                        if likely
                        else "give codes such as en, de, ceb"
                    )
                )
        _share(self, minimum_score=self.minimum_score, margin=self.margin)
        if not 1 <= self.window <= self.long_window:
            raise ValueError(
                f"LanguageConfig.window is {self.window!r} and long_window {self.long_window!r}; "
                "the windows must be at least 1, the long one not below the first"
            )


@dataclass(frozen=True)
class RepetitionRules:
    """Gopher's repetition rules (Rae et al. 2021, table A1, https://arxiv.org/abs/2112.11446). Shares are upper limits.

    Attributes:
        duplicate_lines: share of lines that repeat an earlier one.
        duplicate_paragraphs: share of paragraphs that repeat an earlier one.
        duplicate_line_characters: share of characters in such lines.
        duplicate_paragraph_characters: share of characters in such paragraphs.
        top_n_grams: for each n, share of characters in the most frequent n-gram of words.
        duplicate_n_grams: for each n, share of characters in repeated n-grams of words.
    """

    duplicate_lines: float = 0.3
    duplicate_paragraphs: float = 0.3
    duplicate_line_characters: float = 0.2
    duplicate_paragraph_characters: float = 0.2
    top_n_grams: tuple[tuple[int, float], ...] = ((2, 0.20), (3, 0.18), (4, 0.16))
    duplicate_n_grams: tuple[tuple[int, float], ...] = (
        (5, 0.15),
        (6, 0.14),
        (7, 0.13),
        (8, 0.12),
        (9, 0.11),
        (10, 0.10),
    )

    def __post_init__(self) -> None:
        _share(
            self,
            duplicate_lines=self.duplicate_lines,
            duplicate_paragraphs=self.duplicate_paragraphs,
            duplicate_line_characters=self.duplicate_line_characters,
            duplicate_paragraph_characters=self.duplicate_paragraph_characters,
        )
        _n_gram_limits("top_n_grams", self.top_n_grams, TOP_N_GRAMS)
        _n_gram_limits("duplicate_n_grams", self.duplicate_n_grams, DUPLICATE_N_GRAMS)


@dataclass(frozen=True)
class WordRules:
    """Gopher's quality rules (Rae et al. 2021, appendix A.1.1, https://arxiv.org/abs/2112.11446).

    Attributes:
        minimum_words: fewest words, of those that are not punctuation alone.
        maximum_words: most words.
        minimum_mean_length: shortest mean word length; not applied to scripts without spaces.
        maximum_mean_length: longest mean word length.
        maximum_symbols: most hash signs, and most ellipses, per word.
        maximum_bullet_lines: largest share of lines that start with a bullet.
        maximum_ellipsis_lines: largest share of lines that end with an ellipsis.
        minimum_alphabetic_words: smallest share of words with at least one letter.
        minimum_stop_words: fewest different words out of the eight English stop words; applied to English only.
    """

    minimum_words: int = 50
    maximum_words: int = 100_000
    minimum_mean_length: float = 3.0
    maximum_mean_length: float = 10.0
    maximum_symbols: float = 0.1
    maximum_bullet_lines: float = 0.9
    maximum_ellipsis_lines: float = 0.3
    minimum_alphabetic_words: float = 0.8
    minimum_stop_words: int = 2

    def __post_init__(self) -> None:
        _share(
            self,
            maximum_bullet_lines=self.maximum_bullet_lines,
            maximum_ellipsis_lines=self.maximum_ellipsis_lines,
            minimum_alphabetic_words=self.minimum_alphabetic_words,
        )
        if not 0 <= self.minimum_words <= self.maximum_words:
            raise ValueError(
                f"WordRules.minimum_words is {self.minimum_words!r} and maximum_words {self.maximum_words!r}; "
                "they must be in this order and not negative"
            )
        if not 0 <= self.minimum_mean_length <= self.maximum_mean_length:
            raise ValueError(
                f"WordRules.minimum_mean_length is {self.minimum_mean_length!r} and maximum_mean_length "
                f"{self.maximum_mean_length!r}; they must be in this order and not negative"
            )
        if self.maximum_symbols < 0 or self.minimum_stop_words < 0:
            raise ValueError(
                f"WordRules.maximum_symbols is {self.maximum_symbols!r} and minimum_stop_words "
                f"{self.minimum_stop_words!r}; neither may be negative"
            )


@dataclass(frozen=True)
class SentenceRules:
    """C4's page rules (Raffel et al. 2020, section 2.2, https://arxiv.org/abs/1910.10683). Lines are never rewritten.

    Sentences are counted in the lines that C4 would keep: at least three words, none over 1000 characters, no mention
    of javascript or of a cookie or privacy policy.

    Attributes:
        minimum_sentences: fewest sentences in such lines.
        terminal_punctuation: count only lines that end with a full stop, question or exclamation mark, or a quotation
            mark. FineWeb leaves this off, because it drops too much.
        lorem_ipsum: drop documents with this filler.
        curly_brackets: drop documents with a curly bracket, as C4 does. Off, because every text about programs has one.
    """

    minimum_sentences: int = 5
    terminal_punctuation: bool = False
    lorem_ipsum: bool = True
    curly_brackets: bool = False

    def __post_init__(self) -> None:
        if self.minimum_sentences < 0:
            raise ValueError(f"SentenceRules.minimum_sentences is {self.minimum_sentences!r}; it must not be negative")


@dataclass(frozen=True)
class LineRules:
    """FineWeb's own rules (Penedo et al. 2024, section 3.6, https://arxiv.org/abs/2406.17557).

    Attributes:
        minimum_terminal_lines: smallest share of lines that end with terminal punctuation.
        maximum_short_lines: largest share of lines of at most 30 characters (10 in scripts without spaces).
        duplicate_line_characters: largest share of characters in repeated lines.
        maximum_line_breaks: most line breaks per word; breaks around blank lines do not count.
    """

    minimum_terminal_lines: float = 0.12
    maximum_short_lines: float = 0.67
    duplicate_line_characters: float = 0.01
    maximum_line_breaks: float = 0.3

    def __post_init__(self) -> None:
        _share(
            self,
            minimum_terminal_lines=self.minimum_terminal_lines,
            maximum_short_lines=self.maximum_short_lines,
            duplicate_line_characters=self.duplicate_line_characters,
        )
        if self.maximum_line_breaks < 0:
            raise ValueError(f"LineRules.maximum_line_breaks is {self.maximum_line_breaks!r}; it must not be negative")


@dataclass(frozen=True)
class Rules:
    """Which documents pass. A group that is None is not applied.

    Attributes:
        repetition: Gopher's repetition rules.
        words: Gopher's quality rules.
        sentences: C4's rules.
        lines: FineWeb's rules.
    """

    repetition: RepetitionRules | None = RepetitionRules()
    words: WordRules | None = WordRules()
    sentences: SentenceRules | None = SentenceRules()
    lines: LineRules | None = LineRules()


@dataclass(frozen=True)
class UrlConfig:
    """URL rules: the block list and word lists that ship with datatrove, and a list of one's own.

    Attributes:
        integrated_lists: apply datatrove's lists (4.6 million domains, 20,000 URLs, banned words).
        domains: further domains to drop; subdomains go with them.
        soft_words: number of softly banned words in one URL that drops it.
    """

    integrated_lists: bool = True
    domains: tuple[str, ...] = ()
    soft_words: int = 2

    def __post_init__(self) -> None:
        if self.soft_words < 1:
            raise ValueError(f"UrlConfig.soft_words is {self.soft_words!r}; it must be at least 1")
        for domain in self.domains:
            if domain != domain.strip().lower() or "/" in domain or not domain:
                raise ValueError(
                    f"UrlConfig.domains holds {domain!r}; give bare domains in lower case, such as 'example.org'"
                )


@dataclass(frozen=True)
class MinHashConfig:
    """MinHash signatures, kept as LSH band keys (Broder 1997; Leskovec et al., Mining of Massive Datasets, chapter 3).

    A pair of documents of Jaccard similarity s shares a band with probability 1 - (1 - s^rows)^bands: 0.77 at 0.75,
    0.92 at 0.8 and 0.9996 at 0.9 for the defaults, which are those of FineWeb.

    Attributes:
        shingle: words per shingle. A text with fewer words is one shingle.
        bands: number of bands.
        rows: hashes per band.
        seed: seed of the hash family.
    """

    shingle: int = 5
    bands: int = 14
    rows: int = 8
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("shingle", "bands", "rows"):
            if getattr(self, name) < 1:
                raise ValueError(f"MinHashConfig.{name} is {getattr(self, name)!r}; it must be at least 1")

    def detection(self, similarity: float) -> float:
        """Probability that a pair of this Jaccard similarity becomes a candidate."""
        return 1.0 - math.pow(1.0 - math.pow(similarity, self.rows), self.bands)


@dataclass(frozen=True)
class SignalConfig:
    """What `annotate` measures and judges.

    Attributes:
        language: language identification.
        rules: thresholds on the measured text features.
        url: URL rules.
        minhash: signatures for `deduplicate`.
        longest_text: characters of a document that are measured; the rest of a longer one is not looked at.
        mode: who judges by the rules: ``"fast"`` from the measured features, or ``"reference"`` with datatrove's own
            filters, which are twenty times slower. Features are measured the same way in both.
        measure: ``"all"`` documents, or only those of ``"kept"`` languages: of a document in another language only
            language and URL are then known, which spares most of the work on a crawl of many languages; a policy that
            lets more languages pass finds it ``unmeasured``.
    """

    language: LanguageConfig = LanguageConfig()
    rules: Rules = Rules()
    url: UrlConfig = UrlConfig()
    minhash: MinHashConfig = MinHashConfig()
    longest_text: int = 1_000_000
    mode: Literal["fast", "reference"] = "fast"
    measure: Literal["all", "kept"] = "all"

    def __post_init__(self) -> None:
        if self.measure not in ("all", "kept"):
            raise ValueError(f"SignalConfig.measure is {self.measure!r}; it must be 'all' or 'kept'")
        if self.mode not in ("fast", "reference"):
            raise ValueError(f"SignalConfig.mode is {self.mode!r}; it must be 'fast' or 'reference'")
        if self.longest_text < 1:
            raise ValueError(f"SignalConfig.longest_text is {self.longest_text!r}; it must be at least 1")
