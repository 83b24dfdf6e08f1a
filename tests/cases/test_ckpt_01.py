"""ckpt-01: a half-written checkpoint is never chosen for a resume."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
import torch

from marin.checkpoint.completeness import FoundCheckpoint
from marin.checkpoint.layout import FINISH_MARK, TENSOR_INDEX, folder_of
from marin.checkpoint.ranks import Ranks
from marin.checkpoint.store import CheckpointStore
from marin.execution.running.context import Run
from tests.checkpoint.holder import holder
from tests.checkpoint.test_store import progress_at

Damage = Callable[[Run, FoundCheckpoint], None]


def remove(name: str) -> Damage:
    return lambda run, found: run.state.store.delete(found.keys[name])


def shorten(name: str, keep: float) -> Damage:
    def damage(run: Run, found: FoundCheckpoint) -> None:
        data = run.state.store.read(found.keys[name])
        run.state.store.put(found.keys[name], data[: int(len(data) * keep)])

    return damage


def leave_beside(folder: str) -> Damage:
    """A stray folder next to a removed step 6, as an interrupted tool leaves it."""

    def damage(run: Run, found: FoundCheckpoint) -> None:
        for name, key in found.keys.items():
            with run.state.write(f"checkpoints/{folder}/{name}") as copy:
                copy.write(run.state.store.read(key))
        for key in found.keys.values():
            run.state.store.delete(key)

    return damage


VARIANTS: dict[str, tuple[Damage, str]] = {
    "no metadata": (remove(TENSOR_INDEX), f"file {TENSOR_INDEX} is missing"),
    "no finish mark": (remove(FINISH_MARK), f"no finish mark {FINISH_MARK}"),
    "missing shard": (remove("__0_0.distcp"), "file __0_0.distcp is missing"),
    "shard cut short": (shorten("__0_0.distcp", 0.5), "the finish mark says"),
    "zero-byte metadata": (shorten(TENSOR_INDEX, 0), f"file {TENSOR_INDEX} has 0 bytes"),
    "folder step-6.tmp": (leave_beside("step-6.tmp"), "name is not step-<number>"),
    "folder step-x": (leave_beside("step-x"), "name is not step-<number>"),
}


@pytest.mark.parametrize("scheme", ["file", "memory"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_resume_takes_step_4_and_says_why_6_is_skipped(
    variant: str, scheme: str, tmp_path: object, caplog: pytest.LogCaptureFixture
) -> None:
    damage, reason = VARIANTS[variant]
    run = holder(str(tmp_path) if scheme == "file" else f"memory://{tmp_path}")
    store = CheckpointStore(run.state, check_lease=run.check_lease, ranks=Ranks.alone(), keep_last=3)
    weights = {"model.w": torch.arange(100.0)}
    saved = {step: store.save(weights, progress_at(step)) for step in (2, 4, 6)}
    damage(run, saved[6])

    with caplog.at_level(logging.WARNING):
        found = store.newest()
    assert found is not None
    assert found.step == 4
    assert reason in caplog.text

    again = store.save(weights, progress_at(6))
    assert again.step == 6
    assert store.newest().step == 6  # type: ignore[union-attr]
    assert {file.name for file in run.state.find(f"{folder_of(6)}/*")} == {
        f"{folder_of(6)}/{name}" for name in ("__0_0.distcp", TENSOR_INDEX, "progress.json", FINISH_MARK)
    }
