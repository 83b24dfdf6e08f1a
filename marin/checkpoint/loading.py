"""A published checkpoint as a model in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from marin.checkpoint.artifacts import Checkpoint
from marin.checkpoint.identity import as_json, check_identity

if TYPE_CHECKING:
    from marin.model.transformer import Transformer


def load_model(checkpoint: Checkpoint, device: str = "cpu", *, step: int | None = None) -> Transformer:
    """The model of a checkpoint with its weights and router biases, in evaluation mode, without torch.distributed.

    It is that of the last step, or of the permanent checkpoint after `step` steps. Floating-point precision is that
    of the stored weights. Raises CheckpointError when the stored model is another one or a tensor is missing,
    unexpected or of another shape.
    """
    import torch

    from marin.checkpoint.partial import Source
    from marin.checkpoint.reading import load_tensors, stored_forms
    from marin.checkpoint.tensors import MODEL, announce_loaded, model_tensors
    from marin.model.transformer import Transformer

    source = Source.published(checkpoint, step)
    check_identity(source.progress().identity["model"], as_json(checkpoint.model), source.where)
    double = stored_forms(source.read)[f"{MODEL}embedding.weight"].dtype == str(torch.float64)
    with torch.device("meta"):
        model = Transformer(checkpoint.model).to(torch.float64 if double else torch.float32)
    model.to_empty(device=device)
    model.reset_routing()
    load_tensors(source.read, model_tensors(model), where=source.where, prefix=MODEL)
    return announce_loaded(model).eval()
