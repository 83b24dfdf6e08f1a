"""Reading the tensors of one checkpoint, strictly, by any number of ranks."""

from __future__ import annotations

import hashlib
import logging
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import BinaryIO

import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadPlanner
from torch.distributed.checkpoint.state_dict_loader import load as load_distributed

from marin.checkpoint.completeness import FoundCheckpoint, WrittenFile
from marin.checkpoint.errors import CheckpointError
from marin.checkpoint.files import StoreFiles, StoreReader
from marin.checkpoint.keys import TensorForm, check_keys
from marin.checkpoint.state_folder import ObjectStore

logger = logging.getLogger(__name__)

Opener = Callable[[str], BinaryIO]
"""Opens a file of one checkpoint by its name inside it."""


def load_tensors(
    read: Opener,
    tensors: Mapping[str, Tensor],
    *,
    where: str,
    allow: Sequence[str] = (),
    prefix: str = "",
    group: dist.ProcessGroup | None = None,
    planner: LoadPlanner | None = None,
) -> None:
    """Fills `tensors` in place from the checkpoint whose files `read` opens.

    Only stored names that start with `prefix` are considered; among them the comparison is strict (`check_keys`). On
    one process without `group`, otherwise by all ranks of it together. `planner` may direct what is read elsewhere.
    """
    stored = {name: form for name, form in stored_forms(read).items() if name.startswith(prefix)}
    names = check_keys(stored, forms_of(tensors), where, allow)
    fill(read, {name: tensors[name] for name in names}, where=where, group=group, planner=planner)


def fill(
    read: Opener,
    tensors: Mapping[str, Tensor],
    *,
    where: str,
    group: dist.ProcessGroup | None = None,
    planner: LoadPlanner | None = None,
) -> None:
    """Fills `tensors` in place, all of which the checkpoint must hold. No more than one stored tensor is in memory
    beside them at any time.
    """
    started = time.monotonic()
    with alone_is_meant(group):
        try:
            load_distributed(
                dict(tensors),
                storage_reader=StoreReader(StoreFiles(read=read)),
                planner=planner,
                process_group=group,
                no_dist=group is None,
            )
        except CheckpointException as error:
            causes = {rank: failure[0] for rank, failure in sorted(error.failures.items())}
            told = "; ".join(f"rank {rank}: {type(cause).__name__}: {cause}" for rank, cause in causes.items())
            raise CheckpointError(f"the {where} could not be read: {told}") from error
    logger.info("read %d tensors of the %s in %.2f s", len(tensors), where, time.monotonic() - started)


def stored_forms(read: Opener) -> dict[str, TensorForm]:
    """Shape and dtype of each tensor that a checkpoint holds, from its index."""
    metadata: Metadata = StoreReader(StoreFiles(read=read)).read_metadata()
    forms = {}
    for name, stored in metadata.state_dict_metadata.items():
        if isinstance(stored, TensorStorageMetadata):
            forms[name] = TensorForm(tuple(stored.size), str(stored.properties.dtype))
        else:
            forms[name] = TensorForm((), "object")
    return forms


def forms_of(tensors: Mapping[str, Tensor]) -> dict[str, TensorForm]:
    """Global shape and dtype of each tensor."""
    return {name: TensorForm(tuple(tensor.shape), str(tensor.dtype)) for name, tensor in tensors.items()}


def opener(store: ObjectStore, keys: Mapping[str, str]) -> Opener:
    """Opens the files of a checkpoint by their keys in the store."""
    return lambda name: store.open(keys[name])


def digest_fault(store: ObjectStore, found: FoundCheckpoint, file: WrittenFile) -> str | None:
    """Why one file of a checkpoint is not what was written, None when it is."""
    digest = hashlib.sha256()
    try:
        with store.open(found.keys[file.name]) as stream:
            while block := stream.read(1 << 22):
                digest.update(block)
    except OSError as error:
        return f"its file {file.name} cannot be read: {error}"
    if digest.hexdigest() != file.sha256:
        return f"its file {file.name} does not have the sha256 of the finish mark: it was damaged after it was written"
    return None


@contextmanager
def alone_is_meant(group: dist.ProcessGroup | None) -> Iterator[None]:
    """Keeps torch from warning that a single process saves or loads alone. With a group nothing is changed: filters
    of warnings belong to the whole process, and a background save must not touch them.
    """
    if group is not None:
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is")
        yield
