"""A published checkpoint as a model in one process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, BinaryIO

from marin.checkpoint.artifacts import Checkpoint
from marin.checkpoint.identity import as_json, check_identity
from marin.checkpoint.layout import PROGRESS, PUBLISHED

if TYPE_CHECKING:
    from marin.model.transformer import Transformer


def load_model(checkpoint: Checkpoint, device: str = "cpu") -> Transformer:
    """The model of a checkpoint with its weights and router biases, in evaluation mode, without torch.distributed.

    Floating-point precision is that of the stored weights. Raises CheckpointError when the stored model is another
    one or a tensor is missing, unexpected or of another shape.
    """
    import torch

    from marin.checkpoint.reading import load_tensors, stored_forms
    from marin.checkpoint.tensors import MODEL, announce_loaded, model_tensors
    from marin.model.transformer import Transformer

    def read(name: str) -> BinaryIO:
        return checkpoint.open(f"{PUBLISHED}/{name}")

    where = f"checkpoint of step {checkpoint.step}"
    stored = json.loads(checkpoint.read(f"{PUBLISHED}/{PROGRESS}"))["identity"]["model"]
    check_identity(stored, as_json(checkpoint.model), where)
    double = stored_forms(read)[f"{MODEL}embedding.weight"].dtype == str(torch.float64)
    with torch.device("meta"):
        model = Transformer(checkpoint.model).to(torch.float64 if double else torch.float32)
    model.to_empty(device=device)
    model.reset_routing()
    load_tensors(read, model_tensors(model), where=where, prefix=MODEL)
    return announce_loaded(model).eval()
