"""Names of checkpoints and of the files inside them."""

from __future__ import annotations

import re

ROOT = "checkpoints"
"""Folder of all checkpoints inside a step's resumable state."""

FINISH_MARK = "COMPLETE.json"
"""Written last; lists every other file of the checkpoint."""

PROGRESS = "progress.json"
"""All state that is not a tensor."""

TENSOR_INDEX = ".metadata"
"""Which tensor lies where: the index of torch.distributed.checkpoint, so that its own tools read the folder too."""

REHEARSAL = "rehearsal"
"""Folder of the checkpoint that is only made to be read back, inside a step's resumable state; never resumed from."""

PUBLISHED = "checkpoint"
"""Folder of the published checkpoint among the outputs of a step."""

PUBLISHED_PERMANENT = "checkpoints"
"""Folder of the permanent checkpoints among the outputs of a step, one folder each."""

_FOLDER = re.compile(r"step-(\d{1,12})")


def folder_of(step: int, root: str = ROOT) -> str:
    """Name of the folder of the checkpoint after `step` steps, relative to the resumable state."""
    return f"{root}/step-{step:08d}"


def published_folder(step: int | None) -> str:
    """Name of the folder of a published checkpoint among the outputs of a step: the last one, or the permanent one
    after `step` steps.
    """
    return PUBLISHED if step is None else folder_of(step, PUBLISHED_PERMANENT)


def step_of(folder: str) -> int | None:
    """The step of a checkpoint's folder name (its last part alone), None for a name of any other form."""
    match = _FOLDER.fullmatch(folder)
    return int(match.group(1)) if match else None
