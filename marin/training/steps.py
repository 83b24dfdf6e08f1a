"""The pretraining step: dispatches the gang, then publishes what it left. Imports nothing heavy."""

from __future__ import annotations

from marin.checkpoint.artifacts import Checkpoint
from marin.execution import current_run, step
from marin.model.config import ModelConfig
from marin.tokens.mixture.artifacts import Mixture
from marin.tokens.shards.artifacts import TokenShards
from marin.tokens.tokenizer.artifacts import Tokenizer
from marin.training.config import TrainingConfig
from marin.training.continuation import InitConfig


@step("model/pretrain", version="4", fans_out=True)
def pretrain(
    mixture: Mixture,
    heldout: dict[str, TokenShards],
    tokenizer: Tokenizer,
    model: ModelConfig,
    training: TrainingConfig,
    init: Checkpoint | None = None,
    init_config: InitConfig = InitConfig(),
) -> Checkpoint:
    """Trains `model` on the mixture with one torch.distributed rank for each worker of the step's fleet.

    The run goes on from its last complete checkpoint after any interruption. Outputs: `checkpoint/…` (all state after
    the last step), `metrics.jsonl` (one line a step), `validation.json`, `curve.svg`, `tensorboard/…`. The vocabulary
    is the tokenizer's when that came out smaller than `model` says. With `init` the run begins from that checkpoint,
    and `init_config` says what it takes over. Raises before any rank starts when model, tokenizer, plan, fleet and
    that checkpoint do not fit each other.
    """
    from marin.training.elastic import sizes_for
    from marin.training.job import TrainingJob
    from marin.training.outputs import decode_outcome, publish
    from marin.training.preflight import check_job, fitted_model
    from marin.training.rank import train_rank

    run = current_run()
    job = TrainingJob(
        mixture=mixture,
        heldout=heldout,
        model=fitted_model(model, tokenizer),
        training=training,
        init=init,
        init_config=init_config,
    )
    check_job(job, run.fleet.workers)
    sizes = sizes_for(job.training, job.model, run.fleet)
    outcome = decode_outcome(run.gang(train_rank, job, sizes=sizes)[0])
    return publish(run, job, outcome)
