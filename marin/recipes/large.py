"""`node` and `hero`: the published recipe on GPUs.

Their crawl is a Common Crawl dump, read where it lies; any list of WARC paths (local, s3, gs, https) takes its place
with `--crawls.0.warcs`. Wikipedia is a source of its own, and the positive set of the quality classifier. Sizes, rates
and steps follow the published rules (see marin.model and marin.optim).
"""

from __future__ import annotations

from marin.checkpoint.config import CheckpointPolicy
from marin.data.cells.config import QualityConfig, SampleConfig, TopicConfig
from marin.data.consolidation.config import Policy
from marin.data.crawl.config import ExtractConfig, external_crawl
from marin.data.dedup.config import DecontaminationConfig, DedupConfig
from marin.data.dedup.spans_config import LineConfig, SpanConfig
from marin.data.evalsets.config import EvalSetConfig
from marin.data.filtering.config import SignalConfig
from marin.data.sources.ready import wikipedia
from marin.evaluation.config import EvaluationConfig
from marin.execution import Fleet
from marin.model.accounting import rung_steps
from marin.model.config import ModelConfig
from marin.optim.config import OptimizerConfig
from marin.parallel.config import ParallelPlan, Recompute
from marin.recipes.mixing import two_phases
from marin.recipes.models import LADDER_BATCH
from marin.recipes.scale import Scale
from marin.recipes.small import small_seed
from marin.tokens.shards.config import TokenizeConfig
from marin.tokens.tokenizer.config import TokenizerConfig
from marin.training.config import TrainingConfig, ValidationGrid

DUMP = "CC-MAIN-2026-30"
WARCS = f"s3://commoncrawl/crawl-data/{DUMP}/segments/*/warc/*.warc.gz"
WIKIPEDIA_DUMP = "20261101"
TOPICS = 40
QUALITY_BUCKETS = 5
PERMANENT_STEPS = 6_000
ROLLING_MINUTES = 10.0


def _scale(rung: str, *, fleet: Fleet, plan: ParallelPlan, micro_batch: int) -> Scale:
    model = ModelConfig.rung(rung)
    batch = LADDER_BATCH[rung]
    steps = rung_steps(model, batch)
    tokens = steps * batch * model.sequence_length
    return Scale(
        crawls=(external_crawl("web", (WARCS,), version=DUMP),),
        texts=(wikipedia(WIKIPEDIA_DUMP),),
        extract=ExtractConfig(extractor="resiliparse"),
        signals=SignalConfig(),
        dedup=DedupConfig(priority=("wikipedia", "web"), by_url=True),
        lines=LineConfig(),
        spans=SpanConfig(),
        evalset=EvalSetConfig(
            validation_share=0.0005, choice_items=2_000, rolling_documents=1_000, seed=small_seed("evalset")
        ),
        evalfiles=(),
        decontamination=DecontaminationConfig(),
        sample=SampleConfig(seed=small_seed("sample")),
        topics=TopicConfig(clusters=TOPICS, seed=small_seed("topics")),
        quality=QualityConfig(positive=("wikipedia",), buckets=QUALITY_BUCKETS, seed=small_seed("quality")),
        policy=Policy(),
        tokenizer=TokenizerConfig(vocab_size=model.vocab_size, sample_bytes=20 << 30, seed=small_seed("tokenizer")),
        tokenize=TokenizeConfig(),
        mixture=two_phases(QUALITY_BUCKETS, tokens),
        model=model,
        training=TrainingConfig(
            steps=steps,
            batch_sequences=batch,
            optimizer=OptimizerConfig.recipe(
                tokens=tokens, batch_tokens=batch * model.sequence_length, width=model.width
            ),
            seed=small_seed("training"),
            validation=ValidationGrid(percents=tuple(float(percent) for percent in range(5, 100, 5)), sequences=1_024),
            micro_batch_sequences=micro_batch,
            parallel=plan,
            recompute=Recompute.FULL,
            checkpoints=CheckpointPolicy(
                every_steps=None, every_minutes=ROLLING_MINUTES, permanent_every_steps=PERMANENT_STEPS
            ),
        ),
        fleet=fleet,
        evaluation=EvaluationConfig(
            choice_items=None, rolling_documents=None, device="cuda", seed=small_seed("evaluation")
        ),
    )


def node() -> Scale:
    """The d768 rung of the ladder on one server with eight GPUs."""
    fleet = Fleet(
        workers=8,
        workers_per_node=8,
        cpus_per_worker=12,
        gpus_per_worker=1,
        memory_gb_per_node=1_024,
        accelerator="H100",
    )
    return _scale("d768", fleet=fleet, plan=ParallelPlan(dp_shard=8, ep=8), micro_batch=16)


def hero() -> Scale:
    """The 535B-A23B run: 11 racks with 64 GPUs each; experts within a rack, replicas across racks."""
    fleet = Fleet(
        workers=704,
        workers_per_node=4,
        cpus_per_worker=16,
        gpus_per_worker=1,
        memory_gb_per_node=768,
        accelerator="GB200",
    )
    return _scale(
        "hero",
        fleet=fleet,
        plan=ParallelPlan(dp_replicate=11, dp_shard=64, ep=64),
        micro_batch=1,
    )
