"""Saving and restoring by several ranks: sharded tensors, agreement on one checkpoint, one error for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.training.rank_pool import RankFailed, shared_pool


@dataclass(frozen=True)
class Task:
    prefix: str
    step: int = 2
    epoch: int = 1
    rows: int = 5


def _sharded(task: Task) -> Any:
    """Rows 0..rows-1, sharded unevenly over all ranks, and a replicated scalar."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    from marin.training.environment import RankEnvironment
    from marin.training.process_group import process_group

    context = process_group(RankEnvironment.read())
    ranks = context.__enter__()
    mesh = init_device_mesh("cpu", (ranks.world_size,))
    full = torch.arange(task.rows * 3, dtype=torch.float32).view(task.rows, 3)
    tensors = {"model.w": distribute_tensor(full, mesh, [Shard(0)]), "model.b": torch.tensor(7.0)}
    return context, ranks, tensors


def save(task: Task) -> int:
    from marin.checkpoint.store import CheckpointStore
    from tests.checkpoint.holder import holder
    from tests.checkpoint.test_store import progress_at

    context, ranks, tensors = _sharded(task)
    try:
        run = holder(task.prefix, epoch=task.epoch)
        store = CheckpointStore(run.state, check_lease=run.check_lease, ranks=ranks.ranks)
        return store.save(tensors, progress_at(task.step)).step
    finally:
        context.__exit__(None, None, None)


def restore(task: Task) -> tuple[int, list[list[float]], float] | None:
    import torch
    from torch.distributed.tensor import DTensor

    from marin.checkpoint.store import CheckpointStore
    from tests.checkpoint.holder import holder

    context, ranks, tensors = _sharded(task)
    try:
        with torch.no_grad():
            for tensor in tensors.values():
                tensor.zero_()
        run = holder(task.prefix, epoch=task.epoch)
        store = CheckpointStore(run.state, check_lease=run.check_lease, ranks=ranks.ranks)
        found = store.newest()
        if found is None:
            return None
        store.load(found, tensors)
        weight = tensors["model.w"]
        assert isinstance(weight, DTensor)
        return found.step, weight.full_tensor().tolist(), float(tensors["model.b"])
    finally:
        context.__exit__(None, None, None)


EXPECTED = [[3.0 * row, 3.0 * row + 1, 3.0 * row + 2] for row in range(5)]


@pytest.mark.parametrize(("saving", "restoring"), [(2, 2), (2, 1), (1, 2)])
def test_a_checkpoint_of_any_number_of_ranks_restores_on_any_other(saving: int, restoring: int, tmp_path: Any) -> None:
    pool = shared_pool()
    assert pool.run(save, Task(str(tmp_path)), saving) == [2] * saving
    assert pool.run(restore, Task(str(tmp_path), epoch=2), restoring) == [(2, EXPECTED, 7.0)] * restoring


def test_all_ranks_agree_to_skip_a_damaged_checkpoint(tmp_path: Any) -> None:
    pool = shared_pool()
    for step in (2, 4):
        pool.run(save, Task(str(tmp_path), step=step), 2)
    shard = next(tmp_path.glob("**/step-00000004/__1_0.distcp"))
    shard.write_bytes(bytes(shard.stat().st_size))
    assert [result[0] for result in pool.run(restore, Task(str(tmp_path)), 2)] == [2, 2]


def test_a_mismatch_is_the_same_error_on_every_rank(tmp_path: Any) -> None:
    pool = shared_pool()
    pool.run(save, Task(str(tmp_path)), 2)
    with pytest.raises(RankFailed) as caught:
        pool.run(restore, Task(str(tmp_path), rows=6), 2)
    assert {name for name, _ in caught.value.errors.values()} == {"KeyMismatch"}
    assert "model.w: the checkpoint has [5, 3] torch.float32, asked for [6, 3]" in str(caught.value)


def test_without_a_checkpoint_every_rank_starts_afresh(tmp_path: Any) -> None:
    assert shared_pool().run(restore, Task(str(tmp_path)), 2) == [None, None]
