"""What one worker of a fleet finds where it is, before a run: for `marin preflight`. Pickles."""

from __future__ import annotations

from dataclasses import dataclass, field

from marin.storage import Store


@dataclass(frozen=True)
class Orders:
    """What every worker is to try: `store_bytes` are written and read below `folder`, then deleted.

    Each collective moves about `collective_bytes` per worker, and gives up after `collective_seconds`.
    """

    store: Store
    folder: str
    store_bytes: int = 8 << 20
    collective_bytes: int = 8 << 20
    collective_seconds: float = 60.0


@dataclass(frozen=True)
class StoreSpeed:
    """Seconds of a small write, and bytes per second of a large one and of reading it again."""

    latency: float
    write: float
    read: float


@dataclass(frozen=True)
class CollectiveSpeed:
    """Whether a sum over all workers came out right, and bytes per second of it and of an exchange, a worker."""

    backend: str
    sum_is_right: bool
    all_reduce: float
    all_to_all: float


@dataclass(frozen=True)
class WorkerReport:
    """One worker's findings. `errors` says for each check that broke off how it did.

    `clock` is this worker's wall clock right after all workers left a barrier, `store_clock` how far the store's is
    ahead, both in seconds. `memory` are the bytes that are free for this worker on `device`.
    """

    rank: int
    host: str
    versions: dict[str, str]
    device: str
    memory: int
    region: str = ""
    store: StoreSpeed | None = None
    collectives: CollectiveSpeed | None = None
    clock: float | None = None
    store_clock: float | None = None
    leftovers: tuple[str, ...] = ()
    errors: dict[str, str] = field(default_factory=dict)
