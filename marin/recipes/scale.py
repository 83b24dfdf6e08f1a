"""What a scale decides: every size, threshold and weight of the graphs in experiments/."""

from __future__ import annotations

from dataclasses import dataclass

from marin.data.cells.config import QualityConfig, SampleConfig, TopicConfig
from marin.data.consolidation.config import Policy
from marin.data.crawl.config import CrawlConfig, ExtractConfig
from marin.data.dedup.config import DecontaminationConfig, DedupConfig
from marin.data.dedup.spans_config import LineConfig, SpanConfig
from marin.data.evalsets.config import EvalFileConfig, EvalSetConfig
from marin.data.filtering.config import SignalConfig
from marin.data.sources.config import SourceConfig
from marin.evaluation.config import EvaluationConfig
from marin.execution import Fleet
from marin.model.config import ModelConfig
from marin.recipes.candidates import TokenizerComparison
from marin.tokens.mixture.config import MixtureConfig
from marin.tokens.shards.config import Selection, TokenizeConfig
from marin.tokens.tokenizer.config import TokenizerConfig
from marin.training.config import TrainingConfig


@dataclass(frozen=True)
class Cell:
    """One component of the mixture: the training documents of a topic in a quality bucket."""

    topic: int
    quality: int

    @property
    def name(self) -> str:
        """The cell as the mixture's weights name it."""
        return f"c{self.topic:02d}q{self.quality}"

    @property
    def selection(self) -> Selection:
        """The cell's documents."""
        return Selection(split="train", quality=self.quality, topic=self.topic)


@dataclass(frozen=True)
class Scale:
    """All decisions of one run of the graph. Every seed is in the configs, derived from the one given to the recipe."""

    crawls: tuple[CrawlConfig, ...]
    texts: tuple[SourceConfig, ...]
    """Sources that are not crawled: files in other formats, datasets, dumps."""
    extract: ExtractConfig
    signals: SignalConfig
    dedup: DedupConfig
    lines: LineConfig
    spans: SpanConfig | None
    """Long repeated spans; None leaves the stage out."""
    evalset: EvalSetConfig
    evalfiles: tuple[EvalFileConfig, ...]
    """Public evaluation sets as local files, kept out of the training text."""
    decontamination: DecontaminationConfig
    sample: SampleConfig
    """Documents that topics and quality are learnt from."""
    topics: TopicConfig
    quality: QualityConfig
    policy: Policy
    tokenizer: TokenizerConfig
    tokenize: TokenizeConfig
    mixture: MixtureConfig
    model: ModelConfig
    training: TrainingConfig
    fleet: Fleet
    evaluation: EvaluationConfig
    comparison: TokenizerComparison = TokenizerComparison()
    """Tokenizers that experiments/compare_tokenizers.py compares; exp_535b has no part in it."""

    def __post_init__(self) -> None:
        sources = self.sources
        if len(set(sources)) != len(sources):
            raise ValueError(f"crawls and texts name a source twice: {', '.join(sources)}")
        if not sources:
            raise ValueError("crawls and texts are both empty; name at least one source")
        sets = (self.evalset.name, *(files.name for files in self.evalfiles), *self.evaluation.tasks)
        if len(set(sets)) != len(sets):
            raise ValueError(
                f"evalset, evalfiles and evaluation.tasks name an evaluation set twice: {', '.join(sets)}; the "
                "documents of a task are looked for anyway"
            )
        self._check_names()
        self.mixture.check_cells(cell.name for cell in self.cells)
        self.training.parallel.check(self.model, self.fleet.workers)
        self.training.rank_sequences(self.fleet.workers)
        self._check_languages()
        self._check_lengths()
        if self.evalset.personal != self.policy.personal:
            raise ValueError(
                f"evalset.personal is {self.evalset.personal}, but policy.personal {self.policy.personal}; make them "
                "equal, so that held-out documents read like those that train"
            )
        if self.tokenizer.padded_size(self.tokenizer.vocab_size) != self.model.vocab_size:
            raise ValueError(
                f"model.vocab_size is {self.model.vocab_size}, but tokenizer.vocab_size {self.tokenizer.vocab_size} "
                f"padded to a multiple of {self.tokenizer.pad_to_multiple} is "
                f"{self.tokenizer.padded_size(self.tokenizer.vocab_size)}; make them equal"
            )

    def _check_names(self) -> None:
        self.quality.check_sources(self.sources)
        named = {
            "dedup.priority": self.dedup.priority,
            "dedup.protected": self.dedup.protected,
            "policy.licence.of_source": self.policy.licence.of_source,
            "tokenizer.source_weights": self.tokenizer.source_weights,
        }
        for setting, names in named.items():
            for name in names:
                if name not in self.sources:
                    raise ValueError(
                        f"{setting} names {name!r}, which is no source; {', '.join(self.sources)} are (crawls, texts)"
                    )
        for source in self.sources:
            if self.tokenizer.source_weights and source not in self.tokenizer.source_weights:
                raise ValueError(
                    f"tokenizer.source_weights names no {source!r}; give every source a weight, 0 to leave it out"
                )

    def _check_languages(self) -> None:
        if self.signals.measure == "all" or not self.signals.language.keep or self.policy.language is None:
            return
        measured = ", ".join(self.signals.language.keep)
        unmeasured = [code for code in self.policy.language.keep if code not in self.signals.language.keep]
        if unmeasured or not self.policy.language.keep:
            raise ValueError(
                f"policy.language.keep lets {', '.join(unmeasured) or 'every language'} pass, but signals.measure is "
                f"'kept' and signals.language.keep {measured}, so that documents in others are not measured and all "
                "dropped; name the languages there too, or set signals.measure to 'all'"
            )

    def _check_lengths(self) -> None:
        length = self.tokenize.packing.sequence_length
        if length is not None and length != self.model.sequence_length:
            raise ValueError(
                f"tokenize.packing.sequence_length is {length}, but model.sequence_length "
                f"{self.model.sequence_length}; make them equal"
            )
        positions = self.evaluation.max_length
        if positions is not None and positions > self.model.sequence_length:
            raise ValueError(
                f"evaluation.max_length is {positions}, but model.sequence_length {self.model.sequence_length}; "
                "give at most that, or null for it"
            )
        if self.mixture.tail == "drop" and self.tokenize.packing.policy != "carry_on":
            raise ValueError(
                f"mixture.tail is 'drop', but tokenize.packing.policy {self.tokenize.packing.policy!r} fills sequences "
                "one by one; set mixture.tail to 'pad'"
            )
        if self.mixture.difficulty_bands > 1 and self.tokenize.order_by == "stored":
            raise ValueError(
                f"mixture.difficulty_bands is {self.mixture.difficulty_bands}, but tokenize.order_by 'stored'; order "
                "the documents by a figure such as 'length', or set one band"
            )

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the crawls and of the other sources, in this order."""
        return (*(crawl.source for crawl in self.crawls), *(text.source for text in self.texts))

    @property
    def cells(self) -> tuple[Cell, ...]:
        """Topics times quality buckets."""
        return tuple(
            Cell(topic, quality) for topic in range(self.topics.clusters) for quality in range(self.quality.buckets)
        )
