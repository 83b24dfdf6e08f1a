from __future__ import annotations

import itertools
import threading
from pathlib import Path

import numpy as np
import pytest

from marin.execution import StepError, materialise
from marin.execution.artifact import binding_of
from marin.tokens.mixture.config import MixtureConfig
from marin.tokens.mixture.loader import MixtureLoader
from marin.tokens.mixture.steps import build_mixture
from marin.tokens.shards import blocks
from marin.tokens.shards.config import PackingConfig
from marin.tokens.shards.indexed import IndexedTokens
from marin.tokens.shards.reading import OpenShards, open_shard
from marin.tokens.shards.streaming import BlockCache, StreamedTokens
from tests.tokens.building import written_shards

BLOCK = 256
NAMES = (f"memory://streamed-{number}" for number in itertools.count())


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_BYTES", BLOCK)


@pytest.fixture
def far() -> str:
    """A prefix in a store that is not on this disk."""
    return next(NAMES)


def documents(count: int = 300) -> tuple[tuple[int, ...], ...]:
    generator = np.random.default_rng(0)
    return tuple(tuple(generator.integers(1, 4000, size).tolist()) for size in generator.integers(1, 60, count))


def pair(far: str, tmp_path: Path, most_bytes: int = 1 << 20):
    """The same shards streamed and memory-mapped."""
    handle = written_shards(documents(), 100, 4096, "a")
    remote, near = materialise(handle, prefix=far), materialise(handle, prefix=str(tmp_path / "near"))
    cache = BlockCache(tmp_path / "cache", most_bytes)
    return remote, near, cache


def test_a_streamed_shard_reads_as_the_mapped_one(far: str, tmp_path: Path):
    remote, near, cache = pair(far, tmp_path)
    for far_shard, near_shard in zip(remote.shards, near.shards, strict=True):
        streamed, mapped = open_shard(remote, far_shard, cache), open_shard(near, near_shard)
        assert isinstance(streamed, StreamedTokens) and isinstance(mapped, IndexedTokens)
        assert (streamed.tokens, streamed.documents) == (mapped.tokens, mapped.documents)
        assert np.array_equal(streamed.lengths, mapped.lengths)
        generator = np.random.default_rng(1)
        for begin, end in np.sort(generator.integers(0, mapped.tokens, (50, 2)), axis=1).tolist():
            out = np.empty(end - begin, dtype=np.int64)
            streamed.copy_ids(begin, out)
            assert np.array_equal(out, mapped.ids[begin:end])
            assert np.array_equal(streamed.starts_within(begin, end), mapped.starts_within(begin, end))
            assert streamed.document_at(begin) == mapped.document_at(begin)


@pytest.mark.parametrize("packing", [PackingConfig(), PackingConfig("best_fit", 32)])
def test_a_run_from_an_object_store_is_that_from_the_disk(far: str, tmp_path: Path, packing: PackingConfig):
    handle = build_mixture({"a": written_shards(documents(), 100, 4096, "a", packing)}, MixtureConfig())
    near = MixtureLoader(materialise(handle, prefix=str(tmp_path / "near")), 32, 0, 200)
    cache = BlockCache(tmp_path / "cache", 1 << 20)
    streamed = MixtureLoader(materialise(handle, prefix=far), 32, 0, 200, cache)
    left, right = near.batch(20, 150), streamed.batch(20, 150)
    for name in vars(left):
        assert np.array_equal(getattr(left, name), getattr(right, name))
    fetched = cache.fetched_blocks
    streamed.batch(20, 150)
    assert cache.fetched_blocks == fetched > 0  # all of it was in the cache


def test_the_cache_keeps_within_its_bound_and_removes_what_was_used_longest_ago(far: str, tmp_path: Path):
    most = 12 * BLOCK
    remote, _, cache = pair(far, tmp_path, most)
    source = open_shard(remote, remote.shards[0], cache)
    out = np.empty(BLOCK // 2, dtype=np.int64)
    for begin in range(0, source.tokens - len(out), len(out) // 2):
        source.copy_ids(begin, out)
        held = sum(path.stat().st_size for path in (tmp_path / "cache").iterdir())
        assert held <= most + most // 32 + BLOCK
    assert not list((tmp_path / "cache").glob(".*"))
    assert cache.fetched_blocks > 20  # more than fits went through
    source.copy_ids(begin, out)
    before = cache.fetched_blocks
    source.copy_ids(begin, out)
    assert cache.fetched_blocks == before


def test_a_damaged_block_of_the_cache_is_fetched_again(far: str, tmp_path: Path):
    remote, near, cache = pair(far, tmp_path)
    source = open_shard(remote, remote.shards[0], cache)
    out = np.empty(source.tokens, dtype=np.int64)
    source.copy_ids(0, out)
    for path in (tmp_path / "cache").iterdir():
        path.write_bytes(b"\xff" * path.stat().st_size)
    source.copy_ids(0, out)
    mapped = open_shard(near, near.shards[0])
    assert isinstance(mapped, IndexedTokens)
    assert np.array_equal(out, mapped.ids)


def test_damage_in_the_store_ends_the_run_with_its_place(far: str, tmp_path: Path):
    remote, _, cache = pair(far, tmp_path)
    binding = binding_of(remote)
    assert binding is not None
    key = remote.file_info("00001.bin").key
    data = bytearray(binding.store.read(key))
    data[3 * BLOCK + 5] ^= 1
    binding.store.put(key, bytes(data))
    source = open_shard(remote, remote.shards[1], cache)
    out = np.empty(BLOCK // 2, dtype=np.int64)
    source.copy_ids(0, out)
    with pytest.raises(StepError, match=rf"bytes {3 * BLOCK} to {4 * BLOCK} of memory://.*00001.bin are not those"):
        source.copy_ids(3 * BLOCK // 2, out)


@pytest.mark.parametrize("file", ["00001.bin", "00001.idx", "00001.plan"])
def test_damage_of_equal_size_on_this_disk_ends_the_run_with_the_file(tmp_path: Path, file: str):
    handle = build_mixture(
        {"a": written_shards(documents(), 100, 4096, "a", PackingConfig("best_fit", 32))}, MixtureConfig()
    )
    mixture = materialise(handle, prefix=str(tmp_path))
    path = Path(mixture.components["a"].local(file))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.chmod(0o644)
    path.write_bytes(bytes(data))
    with pytest.raises(StepError, match=rf"{file}.*redo"):
        MixtureLoader(mixture, 32, 0, 500).batch(0, 500)


def test_processes_that_share_a_cache_do_not_disturb_each_other(far: str, tmp_path: Path):
    remote, near, _ = pair(far, tmp_path)
    mapped = open_shard(near, near.shards[2])
    assert isinstance(mapped, IndexedTokens)
    faults: list[BaseException] = []

    def read(seed: int) -> None:
        try:
            source = open_shard(remote, remote.shards[2], BlockCache(tmp_path / "cache", 12 * BLOCK))
            out = np.empty(100, dtype=np.int64)
            for begin in np.random.default_rng(seed).integers(0, mapped.tokens - 100, 150).tolist():
                source.copy_ids(begin, out)
                assert np.array_equal(out, mapped.ids[begin : begin + 100])
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


def test_only_so_many_shards_are_open_at_once(tmp_path: Path):
    near = materialise(written_shards(documents(), 10, 4096, "a"), prefix=str(tmp_path))
    opened = OpenShards(most_open=4)
    first = opened.source(near, 0)
    assert opened.source(near, 0) is first
    for index in range(30):
        opened.source(near, index)
    assert len(opened._sources) == 4
    assert opened.source(near, 0) is not first
