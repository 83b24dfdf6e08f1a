"""One evaluation from its inputs to its report: held-out text, continuations, tasks, files."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from marin.checkpoint.artifacts import Checkpoint
from marin.checkpoint.loading import load_model
from marin.data.documents.artifacts import Attributes
from marin.data.evalsets.artifacts import CHOICE_FILE, ROLLING_FILE, EvalSet
from marin.data.evalsets.overlap import SetOverlap, read_overlap
from marin.evaluation import heldout as compression
from marin.evaluation.artifacts import (
    PAGE,
    RESULTS,
    SAMPLES,
    Continuation,
    EvalReport,
    RequestCounts,
    SourceScore,
    TaskResult,
)
from marin.evaluation.config import EvaluationConfig
from marin.evaluation.contamination import TaskOverlap, further_item, of_sets, own_item, with_contamination
from marin.evaluation.framing import Framer
from marin.evaluation.generation import BatchedGenerator, Prompt
from marin.evaluation.page import page
from marin.evaluation.results import configurations, document_records, known, plain, strict_json_lines, task_results
from marin.evaluation.scoring import BatchedScorer, LogitsModel
from marin.evaluation.tasks import CHOICE, ROLLING, write_choice_task, write_rolling_task
from marin.execution import Flow, StepError, current_run, derive_seed
from marin.tokens.mixture.loader import packed_batches
from marin.tokens.shards.artifacts import TokenShards
from marin.tokens.tokenizer.artifacts import Tokenizer
from marin.tokens.tokenizer.codec import TextCodec, load_codec

logger = logging.getLogger(__name__)

Item = dict[str, Any]


@dataclass(frozen=True)
class Judge:
    """A model with the tokenizer and the limits under which it is asked."""

    codec: TextCodec
    framer: Framer
    scorer: BatchedScorer
    generator: BatchedGenerator
    config: EvaluationConfig


@dataclass
class TaskRun:
    """What the tasks gave so far."""

    results: list[TaskResult] = field(default_factory=list)
    configurations: dict[str, Any] = field(default_factory=dict)
    counts: list[RequestCounts] = field(default_factory=list)
    samples: list[str] = field(default_factory=list)


def measure(
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    evalset: EvalSet,
    heldout: Mapping[str, TokenShards],
    overlap: Attributes,
    config: EvaluationConfig,
) -> EvalReport:
    """The body of the step `evaluate`."""
    run = current_run()
    positions = checkpoint.model.sequence_length
    if config.max_length is not None and config.max_length > positions:
        raise StepError(
            f"evaluation.max_length is {config.max_length} but the model was trained on {positions} positions; "
            "give at most that, or null"
        )
    with timed("loading the model"):
        model = load_model(checkpoint, config.device)
    judge = make_judge(cast(LogitsModel, model), tokenizer, config.max_length or positions, config)
    with timed("held-out text"):
        sources = score_heldout(judge, model, tokenizer, heldout, positions)
    items, documents = (list(evalset.lines(file)) for file in (CHOICE_FILE, ROLLING_FILE))
    with timed("continuations"):
        continuations = continue_documents(judge, documents)
    overlaps = read_overlap(overlap)
    with timed("tasks"):
        tasks = run_tasks(
            judge,
            items[: config.choice_items],
            documents[: config.rolling_documents],
            own=overlaps.get(evalset.name),
            further=overlaps,
        )
    run.account(_flow("choice items", len(items), config.choice_items))
    run.account(_flow("rolling documents", len(documents), config.rolling_documents))
    report = EvalReport(
        step=checkpoint.step,
        tokens=checkpoint.tokens,
        validation_loss=known(checkpoint.validation_loss),
        unigram_loss=known(checkpoint.unigram_loss),
        bits_per_byte=compression.overall(sources),
        sources=tuple(sources),
        tasks=tuple(tasks.results),
        continuations=tuple(continuations),
        framing=judge.framer.framing,
        max_length=judge.framer.max_length,
        requests=RequestCounts.total(tasks.counts),
        samples=tuple(tasks.samples),
        contamination=of_sets(overlaps),
    )
    run.write_json(RESULTS, {"schema": 1, **plain(report), "configurations": tasks.configurations})
    run.write_bytes(PAGE, page(report).encode())
    return report


def make_judge(model: LogitsModel, tokenizer: Tokenizer, max_length: int, config: EvaluationConfig) -> Judge:
    """The model, ready to be asked."""
    run = current_run()
    codec = load_codec(tokenizer)
    framer = Framer(codec, max_length)
    scorer = BatchedScorer(
        model,
        vocab_size=tokenizer.vocab_size,
        max_length=max_length,
        batch_size=config.batch_size,
        batch_tokens=config.batch_tokens,
        device=config.device,
        progress=lambda done, total: run.progress(done, total, "requests"),
    )
    generator = BatchedGenerator(
        model,
        codec.decode,
        eos_id=framer.framing.eos_id,
        forbidden=sorted(codec.special_ids - {framer.framing.eos_id}),
        real_vocab_size=tokenizer.real_vocab_size,
        max_length=max_length,
        batch_size=config.batch_size,
        device=config.device,
    )
    return Judge(codec, framer, scorer, generator, config)


def score_heldout(
    judge: Judge,
    model: Any,
    tokenizer: Tokenizer,
    heldout: Mapping[str, TokenShards],
    sequence_length: int,
) -> list[SourceScore]:
    """Bits per byte of each source that has held-out text."""
    run = current_run()
    config = judge.config
    lengths = compression.byte_lengths(judge.codec, tokenizer.vocab_size)
    limit = config.heldout_tokens
    sequences = None if limit is None else -(-limit // sequence_length)
    scores = []
    for done, (source, shards) in enumerate(sorted(heldout.items())):
        run.progress(done, len(heldout), "sources")
        if not shards.tokens:
            logger.warning("no held-out text of %s: it is left out of the evaluation", source)
            continue
        scores.append(
            compression.score_source(
                source,
                model,
                packed_batches(shards, sequence_length, max(1, config.batch_tokens // sequence_length), sequences),
                total_tokens=shards.tokens,
                total_bytes=shards.text_bytes,
                byte_lengths=lengths,
                bos_id=judge.framer.framing.bos_id,
                device=config.device,
            )
        )
    return scores


def continue_documents(judge: Judge, documents: Sequence[Item]) -> list[Continuation]:
    """Continuations of the beginnings of documents, taken from the sources in turn."""
    config = judge.config.generation
    chosen: list[tuple[Item, list[int]]] = []
    prompts: list[Prompt] = []
    for document in in_turn(documents):
        ids = judge.framer.encode(document["text"])
        if len(chosen) == config.prompts:
            break
        if len(ids) > config.prompt_tokens:
            name = f"continuation/{document['id']}"
            start, _ = judge.framer.prompt(judge.codec.decode(ids[: config.prompt_tokens]), config.new_tokens)
            prompts.append(Prompt(tuple(start), derive_seed(judge.config.seed, name)))
            chosen.append((document, ids))
    texts = judge.generator.generate(prompts, config.new_tokens, config.temperature)
    decode = judge.codec.decode
    return [
        Continuation(
            source=document["source"],
            document_id=document["document_id"],
            prompt=decode(ids[: config.prompt_tokens]),
            text=text.text,
            reference=decode(ids[config.prompt_tokens : config.prompt_tokens + config.new_tokens]),
            tokens=len(text.ids),
            finish=text.finish.value,
        )
        for (document, ids), text in zip(chosen, texts, strict=True)
    ]


def in_turn(documents: Sequence[Item]) -> Iterator[Item]:
    """The first document of each source, then the second of each, and so on; sources by name."""
    by_source: dict[str, list[Item]] = {}
    for document in documents:
        by_source.setdefault(document["source"], []).append(document)
    for rank in range(max(map(len, by_source.values()), default=0)):
        for source in sorted(by_source):
            if rank < len(by_source[source]):
                yield by_source[source][rank]


def run_tasks(
    judge: Judge,
    items: Sequence[Item],
    documents: Sequence[Item],
    *,
    own: SetOverlap | None,
    further: Mapping[str, SetOverlap],
) -> TaskRun:
    """The pipeline's own two tasks, then those that the configuration names.

    `own` and `further` say which of their items occur in documents, as far as they were compared.
    """
    config = judge.config
    folder = current_run().scratch / "tasks"
    folder.mkdir()
    written = []
    if write_choice_task(folder, items):
        written.append(CHOICE)
    if write_rolling_task(folder, documents):
        written.append(ROLLING)
    for name in sorted({CHOICE, ROLLING} - set(written)):
        logger.warning("the evaluation set has nothing for %s: the task is left out", name)
    done = TaskRun()
    with timed("importing lm-eval"):
        from marin.evaluation.harness import TaskFolders
    folders = TaskFolders(config.task_folders) if config.tasks else None
    if folders is not None:
        folders.check(config.tasks)
    for name in written:
        _run_task(judge, TaskFolders([folder]), name, None, TaskOverlap.of(own, own_item), done)
    if folders is not None:
        for name in config.tasks:
            overlap = TaskOverlap.of(further.get(name), further_item)
            _run_task(judge, folders, name, config.task_limit, overlap, done)
    return done


def _run_task(
    judge: Judge, folders: Any, name: str, limit: int | None, overlap: TaskOverlap | None, done: TaskRun
) -> None:
    from marin.evaluation.adapter import TrainedModel

    run = current_run()

    def store(kind: str, records: Sequence[Mapping[str, Any]]) -> None:
        file = f"{SAMPLES}/{name}/{kind}.jsonl"
        run.write_bytes(file, strict_json_lines(records))
        done.samples.append(file)

    model = TrainedModel(judge.framer, judge.scorer, judge.generator, seed=judge.config.seed, sink=store)
    outcome = folders.run(model, name, limit=limit, bootstrap_iterations=judge.config.bootstrap_iterations)
    results = outcome.results
    store("documents", list(document_records(results)))
    done.results += with_contamination(task_results(results), results, outcome.aggregations, overlap)
    done.configurations |= plain(configurations(results))
    done.counts.append(model.counts)


def _flow(unit: str, read: int, limit: int | None) -> Flow:
    kept = read if limit is None else min(read, limit)
    return Flow(unit=unit, read=read, kept=kept, dropped={"beyond_limit": read - kept} if read > kept else {})


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Log how long a part of the evaluation took."""
    start = time.monotonic()
    yield
    logger.info("%s: %.1f s", what, time.monotonic() - start)
