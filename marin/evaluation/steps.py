"""The step that evaluates a checkpoint, and the one that reads what it will be asked."""

from __future__ import annotations

from marin.checkpoint.artifacts import Checkpoint
from marin.data.documents.artifacts import Attributes
from marin.data.evalsets.artifacts import EvalSet
from marin.evaluation.artifacts import EvalReport
from marin.evaluation.config import EvaluationConfig, TaskConfig
from marin.execution import current_run, step
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
