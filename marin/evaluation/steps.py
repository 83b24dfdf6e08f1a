"""The step that evaluates a checkpoint, the one that reads what it will be asked, and one that compares tokenizers."""

from __future__ import annotations

from marin.checkpoint.artifacts import Checkpoint
from marin.data.documents.artifacts import Attributes
from marin.data.evalsets.artifacts import EvalSet
from marin.evaluation.artifacts import EvalReport
from marin.evaluation.comparison import COMPARISON, COMPARISON_PAGE, Comparison, ComparisonConfig, compare
from marin.evaluation.config import EvaluationConfig, TaskConfig
from marin.execution import current_run, step
from marin.tokens.mixture.artifacts import Mixture
from marin.tokens.shards.artifacts import TokenShards
from marin.tokens.tokenizer.artifacts import Tokenizer


@step("evalsets/task", version="1")
def load_task(config: TaskConfig) -> EvalSet:
    """The documents of an lm-eval task from local files, for decontamination; an item's id is `<task>/<number>`.

    What is kept of a document is what a model sees of it: the fields that its prompt shows, the choices, the answer.
    """
    from marin.evaluation.offline import offline

    with offline(current_run().scratch / "caches"):
        from marin.evaluation.task_items import read_task

        return read_task(config)


@step("evaluations/report", version="3", cpus=2.0)
def evaluate(
    model: Checkpoint,
    tokenizer: Tokenizer,
    evalset: EvalSet,
    heldout: dict[str, TokenShards],
    overlap: Attributes,
    config: EvaluationConfig = EvaluationConfig(),
) -> EvalReport:
    """Bits per byte by source, lm-eval tasks over held-out documents (and further ones by name), and continuations.

    Nothing is downloaded: tasks come from local YAML and JSON files alone. Every text is framed as training framed its
    documents. A tiny evaluation set gives a report with unknown (None) errors; an empty one leaves its tasks out.

    Args:
        model: the checkpoint.
        tokenizer: its tokenizer.
        evalset: the held-out items.
        heldout: the held-out documents of each source.
        overlap: which items occur in the documents that training text was chosen from; shown beside every score.
        config: sizes, tasks and seeds.
    """
    from marin.evaluation.offline import offline

    with offline(current_run().scratch / "caches"):
        from marin.evaluation.measure import measure

        return measure(model, tokenizer, evalset, heldout, overlap, config)


@step("evaluations/comparison", version="2", inline=True)
def compare_tokenizers(
    reports: dict[str, tuple[EvalReport, ...]],
    models: dict[str, tuple[Checkpoint, ...]],
    tokenizers: dict[str, Tokenizer],
    mixtures: dict[str, Mixture],
    config: ComparisonConfig,
) -> Comparison:
    """Bits per byte of models that differ in their tokenizer alone, trained at equal FLOPs, by held-out source.

    Args:
        reports: the evaluations over whole held-out texts, one a seed, by tokenizer.
        models: what was evaluated, in the same order.
        tokenizers: by name.
        mixtures: what the models were trained on, by tokenizer.
        config: the baseline, and the budget that steps were derived from.

    Raises:
        StepError: FLOPs differ by more than a step, or held-out texts or models differ.
    """
    from dataclasses import asdict

    from marin.evaluation.comparison_page import page

    comparison = compare(reports, models, tokenizers, mixtures, config)
    run = current_run()
    figures = ("flops", "contests", "sources", "verdicts")
    run.write_json(COMPARISON, {name: value for name, value in asdict(comparison).items() if name in figures})
    run.write_bytes(COMPARISON_PAGE, page(comparison).encode("utf-8"))
    return comparison
