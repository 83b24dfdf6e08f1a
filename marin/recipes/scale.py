"""What a scale decides: every size, threshold and weight of the graph in experiments/exp_535b.py."""

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
        self.quality.check_sources(sources)
        self.mixture.check_cells(cell.name for cell in self.cells)
        self.training.parallel.check(self.model, self.fleet.workers)
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
