"""The checks of `marin preflight` that run on every worker. Imports torch only when it is called."""

from __future__ import annotations

import datetime
import os
import platform
import socket
import time
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

from marin.execution.cluster.versions import versions
from marin.operate.leftovers import processes_left
from marin.operate.regions import region_here
from marin.operate.worker_report import CollectiveSpeed, Orders, StoreSpeed, WorkerReport
from marin.storage import Store

T = TypeVar("T")
SMALL = 1024


def examine_worker(orders: Orders) -> WorkerReport:
    """All checks from here, in the order in which a broken one disturbs the others least.

    Called on every worker at once: collectives need all of them. What raises is in `errors`; the others go on.
    """
    import torch

    rank = int(os.environ["RANK"])
    errors: dict[str, str] = {}

    def tried(name: str, check: Callable[[], T]) -> T | None:
        try:
            return check()
        except Exception as error:  # every library has errors of its own; each is a finding
            errors[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            return None

    store = tried("store", lambda: store_speed(orders, f"{orders.folder}/rank-{rank}"))
    store_clock = tried("clock", lambda: store_clock_ahead(orders.store, f"{orders.folder}/clock-{rank}"))
    region = tried("region", region_here)
    meeting = tried("collectives", lambda: meet(orders))
    pids = meeting[1] if meeting is not None else [os.getpid()]
    leftovers = tried("leftovers", lambda: tuple(processes_left(frozenset(pids)))) if _is_first_of_host() else ()
    device, memory = tried("memory", free_memory) or ("cpu", 0)
    return WorkerReport(
        rank=rank,
        host=socket.gethostname(),
        versions={**versions(), "python": platform.python_version(), **gpu_versions(torch)},
        device=device,
        memory=memory,
        region=region or "",
        store=store,
        store_clock=store_clock,
        collectives=meeting[0] if meeting is not None else None,
        clock=meeting[2] if meeting is not None else None,
        leftovers=leftovers or (),
        errors=errors,
    )


def _is_first_of_host() -> bool:
    return os.environ.get("LOCAL_RANK", "0") == "0"


def store_speed(orders: Orders, folder: str) -> StoreSpeed:
    """Write, read again, compare and delete; raises whatever the store says, or ValueError for other bytes."""
    store, data = orders.store, os.urandom(orders.store_bytes)
    small, large = f"{folder}/small", f"{folder}/large"
    begun = time.perf_counter()
    store.create(small, data[:SMALL])
    latency = time.perf_counter() - begun
    begun = time.perf_counter()
    with store.writer(large) as stream:
        stream.write(data)
    write = time.perf_counter() - begun
    begun = time.perf_counter()
    same = store.read(large) == data
    read = time.perf_counter() - begun
    store.delete(small)
    store.delete(large)
    if not same:
        raise ValueError(f"{store.url_of(large)} was read with other bytes than were written")
    return StoreSpeed(latency, len(data) / write, len(data) / read)


def store_clock_ahead(store: Store, key: str) -> float | None:
    """Seconds by which the store's clock is ahead of this one, to its own resolution; None where it tells no time."""
    from fsspec.core import url_to_fs

    if store.url.startswith("memory://"):
        return None
    before = time.time()
    store.put(key, uuid.uuid4().bytes)
    after = time.time()
    filesystem, path = url_to_fs(store.url_of(key), use_listings_cache=False)
    written = filesystem.modified(path)
    store.delete(key)
    if not isinstance(written, datetime.datetime):
        return None
    if written.tzinfo is None:
        written = written.replace(tzinfo=datetime.UTC)
    moment = written.timestamp()
    if before - 1 <= moment <= after + 1:  # most stores tell whole seconds
        return 0.0
    return moment - (before + after) / 2


def free_memory() -> tuple[str, int]:
    """The device of this worker, and bytes that are free for it: of its card, or its share of the machine's memory."""
    import psutil
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        free, _ = torch.cuda.mem_get_info()
        return torch.cuda.get_device_name(), int(free)
    return "cpu", int(psutil.virtual_memory().available / int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def gpu_versions(torch: Any) -> dict[str, str]:
    """CUDA, NCCL and the driver, where there is a GPU."""
    if not torch.cuda.is_available():
        return {}
    import subprocess

    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(asked, capture_output=True, text=True, timeout=20, check=False).stdout.split("\n")[0]
    nccl = ".".join(map(str, torch.cuda.nccl.version()))
    return {"cuda": str(torch.version.cuda), "nccl": nccl, "driver": driver.strip() or "unknown"}


def meet(orders: Orders) -> tuple[CollectiveSpeed, list[int], float]:
    """The speed of collectives, the process ids of workers on this host, and the wall clock at one common moment."""
    import torch
    import torch.distributed as dist

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    on_card = torch.cuda.is_available()
    backend = "cpu:gloo,cuda:nccl" if on_card else "gloo"
    device = torch.device("cpu")
    if on_card:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    limit = datetime.timedelta(seconds=orders.collective_seconds)
    dist.init_process_group(backend, rank=rank, world_size=world, timeout=limit)
    try:
        # Device collectives with a CUDA tensor go over NCCL, all others over gloo.
        size = max(world, orders.collective_bytes // 4 // world * world)
        values = torch.full((size,), float(rank + 1), device=device)
        seconds = _seconds(lambda: dist.all_reduce(values), device)
        right = bool((values == world * (world + 1) / 2).all())
        # Element k of the part for rank r is rank * world + r, so what arrives tells where it came from.
        parts = torch.arange(world, device=device).repeat_interleave(size // world).float() + rank * world
        arrived = torch.empty_like(parts)
        exchange = _seconds(lambda: dist.all_to_all_single(arrived, parts), device)
        expected = torch.arange(world, device=device).repeat_interleave(size // world).float() * world + rank
        right = right and bool((arrived == expected).all())
        neighbours: list[Any] = [None] * world
        dist.all_gather_object(neighbours, (socket.gethostname(), os.getpid()))
        dist.barrier()
        clock = time.time()
    finally:
        dist.destroy_process_group()
    bytes_a_worker = size * 4
    speed = CollectiveSpeed(
        "nccl" if on_card else "gloo", right, bytes_a_worker / seconds, bytes_a_worker * (world - 1) / world / exchange
    )
    return speed, [pid for host, pid in neighbours if host == socket.gethostname()], clock


def _seconds(collective: Callable[[], Any], device: Any) -> float:
    """Of a collective, after a tiny one that opens the connections."""
    import torch
    import torch.distributed as dist

    warm = torch.zeros(1, device=device)
    dist.all_reduce(warm)
    if device.type == "cuda":
        torch.cuda.synchronize()
    begun = time.perf_counter()
    collective()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return max(time.perf_counter() - begun, 1e-9)
