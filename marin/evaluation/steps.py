"""The step that evaluates a checkpoint."""

from __future__ import annotations

from marin.checkpoint.artifacts import Checkpoint
from marin.data.evalsets.artifacts import EvalSet
from marin.evaluation.artifacts import EvalReport
from marin.evaluation.config import EvaluationConfig
from marin.execution import current_run, step
from marin.tokens.shards.artifacts import TokenShards
from marin.tokens.tokenizer.artifacts import Tokenizer


@step("evaluations/report", version="2", cpus=2.0)
def evaluate(
    model: Checkpoint,
    tokenizer: Tokenizer,
    evalset: EvalSet,
    heldout: dict[str, TokenShards],
    config: EvaluationConfig = EvaluationConfig(),
) -> EvalReport:
    """Bits per byte by source, lm-eval tasks over held-out documents (and further ones by name), and continuations.

    Nothing is downloaded: tasks come from local YAML and JSON files alone. Every text is framed as training framed its
    documents. A tiny evaluation set gives a report with unknown (None) errors; an empty one leaves its tasks out.
    """
    from marin.evaluation.offline import offline

    with offline(current_run().scratch / "caches"):
        from marin.evaluation.measure import measure

        return measure(model, tokenizer, evalset, heldout, config)
