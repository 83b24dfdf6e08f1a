"""Saving and restoring in one process: what counts, what is refused, what is removed."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import pytest
import torch
from torch import nn

from marin.checkpoint.completeness import FoundCheckpoint
from marin.checkpoint.errors import CheckpointError, IdentityMismatch, KeyMismatch
from marin.checkpoint.identity import as_json, check_identity
from marin.checkpoint.layout import folder_of, step_of
from marin.checkpoint.progress import MetricsSegment, Progress
from marin.checkpoint.ranks import Ranks
from marin.checkpoint.reading import load_tensors
from marin.checkpoint.store import CheckpointStore
from marin.checkpoint.tensors import create_optimizer_state, model_tensors, optimizer_tensors
from marin.execution import LeaseLost, runtime
from marin.execution.fields import added
from marin.execution.running.context import Run
from tests.checkpoint.holder import holder


def progress_at(step: int) -> Progress:
    return Progress(
        step=step,
        next_sequence=8 * step,
        tokens=100 * step,
        updates=step,
        skipped_in_a_row=0,
        metrics=(MetricsSegment(first=1, last=step, key="metrics/x", size=3),),
        validations=({"step": 1, "loss": 2.5},),
        random_states=({"cpu": "AAAA"},),
        identity={"model": {"width": 4}, "mixture": "abc"},
        parts={"guard": {"seen": 3}},
    )


def store_of(run: Run, **options: object) -> CheckpointStore:
    return CheckpointStore(run.state, check_lease=run.check_lease, ranks=Ranks.alone(), **options)  # type: ignore[arg-type]


def trained(steps: int = 3) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.ones(3, 4)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


def damage(run: Run, found: FoundCheckpoint) -> str:
    """Turn one bit of a tensor file without a change of its size; returns its name."""
    shard = next(name for name in found.keys if name.endswith(".distcp"))
    data = bytearray(run.state.store.read(found.keys[shard]))
    data[len(data) // 2] ^= 1
    run.state.store.put(found.keys[shard], bytes(data))
    return shard


@pytest.fixture(params=["file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: object) -> str:
    """A store on the local disk, and one that fsspec serves."""
    return str(tmp_path) if request.param == "file" else f"memory://{tmp_path}"


def test_a_restored_model_and_optimizer_equal_the_saved_ones_bit_for_bit(url: str) -> None:
    model, optimizer = trained()
    run = holder(url)
    store_of(run).save(model_tensors(model) | optimizer_tensors(model, optimizer), progress_at(3))

    other, fresh = trained(steps=0)
    create_optimizer_state(fresh)
    restored = store_of(holder(url, epoch=2))
    found = restored.newest()
    assert found is not None
    restored.load(found, model_tensors(other) | optimizer_tensors(other, fresh))
    assert restored.read_progress(found) == progress_at(3)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True))
    for key, value in optimizer_tensors(model, optimizer).items():
        assert torch.equal(value, optimizer_tensors(other, fresh)[key])


def test_the_newest_of_all_visible_epochs_is_chosen(url: str) -> None:
    model, _ = trained()
    store_of(holder(url, epoch=1)).save(model_tensors(model), progress_at(4))
    store_of(holder(url, epoch=3)).save(model_tensors(model), progress_at(2))
    found = store_of(holder(url, epoch=2)).newest()
    assert found is not None
    assert (found.step, found.epoch, found.own) == (4, 1, False)
    assert store_of(holder(url, epoch=3)).newest().step == 4  # type: ignore[union-attr]


def test_a_file_damaged_without_a_change_of_size_is_noticed_by_its_digest(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    model, _ = trained()
    run = holder(url)
    store_of(run).save(model_tensors(model), progress_at(2))
    newest = store_of(run).save(model_tensors(model), progress_at(4))
    shard = damage(run, newest)
    with caplog.at_level(logging.WARNING):
        found = store_of(run).newest()
    assert found is not None
    assert found.step == 2
    assert f"{shard} does not have the sha256" in caplog.text


def test_a_damaged_later_checkpoint_does_not_push_out_the_one_just_saved(url: str) -> None:
    model, _ = trained()
    run = holder(url)
    store = store_of(run, keep_last=1)
    later = store.save(model_tensors(model), progress_at(8))
    damage(run, later)
    assert store.newest() is None
    store.save(model_tensors(model), progress_at(4))
    found = store.newest()
    assert found is not None
    assert found.step == 4
    assert [found.step for found in store.survey().complete] == [4]


def test_older_rolling_checkpoints_go_and_permanent_ones_stay(url: str) -> None:
    model, _ = trained()
    run = holder(url, epoch=2)
    kept = store_of(run, keep_last=2)
    for step in (2, 3, 4, 5, 6):
        kept.save(model_tensors(model), progress_at(step), permanent=step % 3 == 0)
    found = [(found.step, found.permanent) for found in kept.survey().complete]
    assert found == [(6, True), (5, False), (4, False), (3, True)]
    assert not [file.name for file in run.state.find(f"{folder_of(2)}/*")]


def test_what_earlier_epochs_left_goes_once_the_own_epoch_has_enough(url: str) -> None:
    model, _ = trained()
    earlier = store_of(holder(url, epoch=1))
    earlier.save(model_tensors(model), progress_at(1))
    earlier.save(model_tensors(model), progress_at(2), permanent=True)
    later = store_of(holder(url, epoch=2), keep_last=2)
    seen = []
    for step in (3, 4):
        later.save(model_tensors(model), progress_at(step))
        seen.append([(found.step, found.epoch) for found in later.survey().complete])
    assert seen == [[(3, 2), (2, 1), (1, 1)], [(4, 2), (3, 2), (2, 1)]]


def test_a_save_without_the_lease_leaves_nothing_that_counts(url: str) -> None:
    model, _ = trained()
    run = holder(url)

    def lost() -> None:
        raise LeaseLost("a newer epoch exists")

    store = CheckpointStore(run.state, check_lease=lost, ranks=Ranks.alone())
    with pytest.raises(LeaseLost):
        store.save(model_tensors(model), progress_at(2))
    assert store.survey().complete == ()
    assert "no finish mark" in store.survey().skipped[0].reason


def test_a_checkpoint_with_a_value_that_is_not_finite_is_never_written(url: str) -> None:
    model, _ = trained()
    with torch.no_grad():
        model.get_parameter("1.weight")[0, 0] = float("nan")
    run = holder(url)
    with pytest.raises(CheckpointError, match=r"model\.1\.weight"):
        store_of(run).save(model_tensors(model), progress_at(2))
    assert run.state.find("checkpoints/*") == []


def test_tensors_are_refused_in_one_message_with_all_faults(url: str) -> None:
    model, _ = trained()
    run = holder(url)
    found = store_of(run).save(model_tensors(model), progress_at(2))
    wanted = model_tensors(model)
    wanted["model.2.weight"] = wanted.pop("model.1.weight")
    wanted["model.0.bias"] = torch.zeros(7)
    with pytest.raises(KeyMismatch) as caught:
        store_of(run).load(found, wanted)
    text = str(caught.value)
    assert "missing in the checkpoint (1):\n    model.2.weight" in text
    assert "unexpected in the checkpoint (1):\n    model.1.weight" in text
    assert "model.0.bias: the checkpoint has [6] torch.float32, asked for [7] torch.float32" in text


def test_a_partial_load_takes_an_explicit_list(url: str) -> None:
    model, optimizer = trained()
    run = holder(url)
    found = store_of(run).save(model_tensors(model) | optimizer_tensors(model, optimizer), progress_at(3))
    other, _ = trained(steps=0)
    with pytest.raises(KeyMismatch):
        store_of(run).load(found, model_tensors(other))
    store_of(run).load(found, model_tensors(other), allow=["optimizer.*"])
    assert torch.equal(other.get_parameter("0.weight"), model.get_parameter("0.weight"))


def test_the_files_are_readable_by_torchs_own_reader(tmp_path: object) -> None:
    from torch.distributed.checkpoint import FileSystemReader, load

    model, _ = trained()
    run = holder(str(tmp_path))
    found = store_of(run).save(model_tensors(model), progress_at(2))
    folder = run.state.store.local_path(found.keys[".metadata"]).parent  # type: ignore[union-attr]
    target = {name: torch.zeros_like(tensor) for name, tensor in model_tensors(model).items()}
    load(target, storage_reader=FileSystemReader(folder), no_dist=True)
    assert all(torch.equal(target[name], tensor) for name, tensor in model_tensors(model).items())


def test_tensors_load_through_any_opener(tmp_path: object) -> None:
    model, _ = trained()
    run = holder(str(tmp_path))
    found = store_of(run).save(model_tensors(model), progress_at(2))
    other, _ = trained(steps=0)
    load_tensors(
        lambda name: run.state.store.open(found.keys[name]), model_tensors(other), where="copy", prefix="model."
    )
    assert torch.equal(other.get_parameter("0.weight"), model.get_parameter("0.weight"))


def test_another_identity_is_refused_with_the_differing_fields() -> None:
    stored = {"model": {"width": 4, "layers": 2}, "mixture": "abc"}
    check_identity(stored, dict(stored), "checkpoint")
    with pytest.raises(IdentityMismatch) as caught:
        check_identity(
            stored, {"model": {"width": 8, "layers": 2}, "mixture": "abc", "seed": 1}, "checkpoint of step 2"
        )
    text = str(caught.value)
    assert "model.width: 4 -> 8" in text
    assert "seed: (absent) -> 1" in text
    assert "layers" not in text


@dataclasses.dataclass(frozen=True)
class Settings:
    """A config before and after two fields joined it."""

    width: int = 4
    threads: int = runtime(1)
    window: int | None = added(None, since="2026-11-30")


def test_fields_that_only_say_how_and_those_that_joined_later_do_not_make_a_checkpoint_another_one() -> None:
    assert as_json(Settings(threads=8)) == {"width": 4}
    assert as_json(Settings(window=6)) == {"width": 4, "window": 6}
    check_identity({"model": {"width": 4}}, {"model": as_json(Settings(threads=2))}, "checkpoint")
    with pytest.raises(IdentityMismatch, match=r"model\.window: \(absent\) -> 6"):
        check_identity({"model": {"width": 4}}, {"model": as_json(Settings(window=6))}, "checkpoint")


def test_fields_that_are_named_may_differ() -> None:
    stored = {"model": {"width": 4}, "mixture": "abc", "optimizer": {"rate": 1.0, "beta": 0.9}}
    own = {"model": {"width": 4}, "mixture": "def", "optimizer": {"rate": 2.0, "beta": 0.8}}
    check_identity(stored, own, "checkpoint", allow=["mixture", "optimizer.*"])
    with pytest.raises(IdentityMismatch) as caught:
        check_identity(stored, own, "checkpoint", allow=["mixture", "optimizer.rate"])
    assert "optimizer.beta: 0.9 -> 0.8" in str(caught.value)
    assert "mixture" not in str(caught.value)


def test_progress_survives_its_json_form_and_refuses_another_form() -> None:
    assert Progress.from_bytes(progress_at(3).to_bytes()) == progress_at(3)
    without = dataclasses.asdict(progress_at(3))
    del without["tokens"]
    import json

    with pytest.raises(CheckpointError, match="tokens"):
        Progress.from_bytes(json.dumps(without).encode())


@pytest.mark.parametrize(
    ("name", "step"), [("step-00000006", 6), ("step-6.tmp", None), ("step-x", None), ("step-", None)]
)
def test_only_names_of_the_one_form_are_steps(name: str, step: int | None) -> None:
    assert step_of(name) == step


class FailingState:
    """A state whose writes fail with a given error."""

    def __init__(self, run: Run, error: Exception) -> None:
        self._state = run.state
        self._error = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)

    def write(self, name: str) -> Any:
        raise self._error


@pytest.mark.parametrize(
    ("error", "raised", "text"),
    [
        (OSError("no space left"), CheckpointError, "step 2 could not be written: rank 0: OSError: no space left"),
        (LeaseLost("epoch 3 exists"), LeaseLost, "epoch 3 exists"),
    ],
)
def test_a_failed_write_says_which_rank_and_why(
    error: Exception, raised: type[Exception], text: str, tmp_path: object
) -> None:
    run = holder(str(tmp_path))
    store = CheckpointStore(FailingState(run, error), check_lease=run.check_lease, ranks=Ranks.alone())
    with pytest.raises(raised, match=text):
        store.save({"model.w": torch.ones(2)}, progress_at(2))


def test_an_error_that_does_not_pickle_reaches_every_rank_in_words() -> None:
    class Throttled(Exception):
        def __init__(self, code: int, *, reason: str) -> None:
            super().__init__(f"{code} {reason}")

    def fail() -> None:
        raise Throttled(503, reason="slow down")

    with pytest.raises(CheckpointError, match="Throttled: 503 slow down"):
        Ranks.alone().from_first(fail)
