"""A published checkpoint as a model in one process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from marin.checkpoint.artifacts import Checkpoint
from marin.checkpoint.layout import PROGRESS, PUBLISHED
from marin.checkpoint.progress import as_json, check_identity

if TYPE_CHECKING:
    from marin.model.transformer import Transformer


def load_model(checkpoint: Checkpoint, device: str = "cpu") -> Transformer:
    """The model of a checkpoint with its weights and router biases, in evaluation mode, without torch.distributed.

    Floating-point precision is that of the stored weights. Raises CheckpointError when the stored model is another
    one or a tensor is missing, unexpected or of another shape.
    """
    import torch

    from marin.checkpoint.store import load_tensors, stored_forms
    from marin.checkpoint.tensors import MODEL, model_tensors
    from marin.model.transformer import Transformer

    def read(name: str):  # type: ignore[no-untyped-def]
        return checkpoint.open(f"{PUBLISHED}/{name}")

    where = f"checkpoint of step {checkpoint.step}"
    stored = json.loads(checkpoint.read(f"{PUBLISHED}/{PROGRESS}"))["identity"]["model"]
    check_identity(stored, as_json(checkpoint.model), where)
    model = Transformer(checkpoint.model)
    dtypes = {
        form.dtype for name, form in stored_forms(read).items() if name.startswith(MODEL) and name.endswith(".weight")
    }
    if dtypes == {str(torch.float64)}:
        model = model.double()
    load_tensors(read, model_tensors(model), where=where, prefix=MODEL)
    return model.to(device).eval()
