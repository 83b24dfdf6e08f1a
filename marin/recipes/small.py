"""`smoke` and `laptop`: the whole graph on two cores, on the documentation of packages that are installed anyway."""

from __future__ import annotations

from dataclasses import replace

from marin.checkpoint.config import CheckpointPolicy
from marin.data.cells.config import QualityConfig, SampleConfig, TopicConfig
from marin.data.consolidation.config import Policy
from marin.data.crawl.config import ExtractConfig, embedded_crawls
from marin.data.dedup.config import DecontaminationConfig, DedupConfig
from marin.data.dedup.spans_config import LineConfig, SpanConfig
from marin.data.evalsets.config import EvalSetConfig
from marin.data.filtering.config import LanguageConfig, LineRules, Rules, SentenceRules, SignalConfig, WordRules
from marin.evaluation.config import EvaluationConfig, GenerationConfig
from marin.execution import Fleet, derive_seed
from marin.model.config import ModelConfig
from marin.optim.config import OptimizerConfig
from marin.parallel.config import ParallelPlan
from marin.recipes.candidates import Candidate, TokenizerComparison
from marin.recipes.mixing import two_phases
from marin.recipes.scale import Scale
from marin.tokens.shards.config import TokenizeConfig
from marin.tokens.tokenizer.config import TokenizerConfig
from marin.training.config import TrainingConfig, ValidationGrid

ROOT_SEED = 535

DOCUMENTATION_RULES = Rules(
    words=WordRules(minimum_words=30, minimum_alphabetic_words=0.6),
    sentences=SentenceRules(minimum_sentences=2),
    lines=LineRules(duplicate_line_characters=0.1),
)
"""The published rules, with room for what documentation has more of than prose: short pages, code and tables."""

DOCUMENTATION_LANGUAGE = LanguageConfig(minimum_score=0.3)
"""The identifier is less sure of English among identifiers and signatures: at 0.65 a third of the pages would go."""


def small_seed(name: str) -> int:
    """The seed for a purpose, small enough to read in a config file."""
    return derive_seed(ROOT_SEED, name) % 2**31


def _scale(
    *,
    pages: int,
    topics: int,
    model: ModelConfig,
    training: TrainingConfig,
    evalset: EvalSetConfig,
    evaluation: EvaluationConfig,
) -> Scale:
    crawls = embedded_crawls(max_pages=pages)
    quality = QualityConfig(buckets=2, scope="topic", seed=small_seed("quality"))
    tokenizer = TokenizerConfig(vocab_size=model.vocab_size, pad_to_multiple=64, seed=small_seed("tokenizer"))
    tokens = training.sequences * model.sequence_length
    return Scale(
        crawls=crawls,
        texts=(),
        extract=ExtractConfig(extractor="resiliparse"),
        signals=SignalConfig(language=DOCUMENTATION_LANGUAGE, rules=DOCUMENTATION_RULES),
        dedup=DedupConfig(),
        lines=LineConfig(),
        spans=SpanConfig(),
        evalset=evalset,
        evalfiles=(),
        decontamination=DecontaminationConfig(),
        sample=SampleConfig(seed=small_seed("sample")),
        topics=TopicConfig(clusters=topics, dimensions=16, seed=small_seed("topics")),
        quality=quality,
        policy=Policy(),
        tokenizer=tokenizer,
        tokenize=TokenizeConfig(),
        mixture=two_phases(quality.buckets, tokens),
        model=model,
        training=training,
        fleet=Fleet(workers=2, workers_per_node=2),
        evaluation=evaluation,
        comparison=TokenizerComparison(
            candidates=(
                Candidate("own"),
                Candidate("half", replace(tokenizer, vocab_size=tokenizer.vocab_size // 2, on_shortfall="error")),
            )
        ),
    )


def smoke() -> Scale:
    """A run of at most 90 seconds, for tests and CI: every stage does its job, the model learns little."""
    return _scale(
        pages=320,
        topics=2,
        model=ModelConfig.shaped(
            width=64,
            layers=2,
            vocab_size=1_024,
            head_dim=16,
            experts=8,
            experts_per_token=2,
            shared_experts=1,
            gate_rank=16,
            sequence_length=128,
        ),
        training=TrainingConfig(
            steps=30,
            batch_sequences=16,
            optimizer=OptimizerConfig(learning_rate=6e-3),
            warmup_share=0.1,
            seed=small_seed("training"),
            validation=ValidationGrid(percents=(50.0,), sequences=32),
            parallel=ParallelPlan(dp_shard=2, ep=2),
            checkpoints=CheckpointPolicy(every_steps=10),
            log_every=10,
        ),
        evalset=EvalSetConfig(validation_share=0.15, choice_items=24, rolling_documents=6, seed=small_seed("evalset")),
        evaluation=EvaluationConfig(
            choice_items=24,
            rolling_documents=6,
            heldout_tokens=4_096,
            bootstrap_iterations=0,
            generation=GenerationConfig(prompts=2, new_tokens=16),
            seed=small_seed("evaluation"),
        ),
    )


def laptop() -> Scale:
    """The default: minutes on two cores, and a model that has plainly learned."""
    return _scale(
        pages=2_000,
        topics=2,
        model=ModelConfig.shaped(
            width=128,
            layers=4,
            vocab_size=4_096,
            head_dim=32,
            experts=16,
            experts_per_token=2,
            shared_experts=1,
            gate_rank=16,
            sequence_length=256,
        ),
        training=TrainingConfig(
            steps=300,
            batch_sequences=16,
            optimizer=OptimizerConfig(learning_rate=4e-3),
            warmup_share=0.05,
            seed=small_seed("training"),
            validation=ValidationGrid(percents=(25.0, 50.0, 75.0), sequences=64),
            parallel=ParallelPlan(dp_shard=2, ep=2),
            checkpoints=CheckpointPolicy(every_steps=50),
            log_every=10,
        ),
        evalset=EvalSetConfig(validation_share=0.05, seed=small_seed("evalset")),
        evaluation=EvaluationConfig(seed=small_seed("evaluation")),
    )
