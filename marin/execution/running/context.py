"""`Run`: what a step's body, a shard function or a gang's rank sees of the run around it."""

from __future__ import annotations

import contextlib
import contextvars
import fnmatch
import hashlib
import json
import logging
import pickle
import time
import typing
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from marin.execution.artifact import Artifact, FileInfo
from marin.execution.codec import Reference, decode, encode
from marin.execution.failures import StepError
from marin.execution.fleet import Fleet
from marin.execution.identity import UnstableValue, canonical, dependency_identity, dumps
from marin.execution.records import Flow
from marin.execution.redaction import guarded, redact, refuse_exposed, refuse_exposed_bytes
from marin.execution.running.claims import check_lease
from marin.execution.running.intermediates import DAMAGED_MARK, Intermediate, load_intermediate
from marin.execution.running.scratch import Scratch
from marin.execution.running.stopping import StopRequest
from marin.execution.running.tasks import RankOutcome, Report, RunSpec, ShardOutcome, ShardTask
from marin.execution.secrets import available
from marin.storage import AlreadyExists, ChecksummedWriter, Store

logger = logging.getLogger(__name__)
R = TypeVar("R")

LEASE_CHECK_SECONDS = 5.0
PROGRESS_SECONDS = 0.3


@dataclass(frozen=True)
class StateFile:
    """An object of resumable state: name within its epoch's folder, epoch, key in the store, size in bytes."""

    name: str
    epoch: int
    key: str
    size: int


class Fanout(Protocol):
    """How a back end runs the parts of a step."""

    def map(self, spec: RunSpec, tasks: Sequence[ShardTask]) -> Iterator[tuple[int, ShardOutcome]]:
        """Run the shards, yielding (index, outcome) as they finish."""

    def gang(
        self, spec: RunSpec, entry: Callable[[Any], Any], payload: Any, report: Report, sizes: Sequence[int] = ()
    ) -> list[RankOutcome]:
        """Run one process per worker of the fleet, or one of the sizes; a dead rank ends and restarts all."""


class State:
    """Resumable work of a step, kept by claim epoch: we write into our own, and read those up to our own.

    A redo of a finished step begins without any: the state that made the earlier record is not looked at.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def store(self) -> Store:
        """The store that holds the state."""
        return self._run.spec.store

    @property
    def folder(self) -> str:
        """The key of our own epoch's folder."""
        spec = self._run.spec
        return f"{spec.state_folder}/{spec.claim.epoch:06d}"

    def key(self, name: str) -> str:
        """The store key of a name in our own epoch."""
        return f"{self.folder}/{name}"

    def url(self, name: str) -> str:
        """The fsspec address of a name in our own epoch."""
        return self.store.url_of(self.key(name))

    def write(self, name: str) -> ChecksummedWriter:
        """A writer for a state file of our own epoch."""
        self._run.check_lease_now_and_then()
        stream = self.store.writer(self.key(name))
        stream.before_write = self._run.check_lease_now_and_then
        spec = self._run.spec
        return guarded(stream, spec.secrets.values.values(), f"the state {name!r} of {spec.display}")

    def create(self, name: str, data: bytes) -> None:
        """Create a small state file, such as a finish mark, only if it is absent; raises `LeaseLost`."""
        self._run.check_lease()
        refuse_exposed_bytes(data, f"the state {name!r} of {self._run.spec.display}")
        self.store.create(self.key(name), data)

    def find(self, pattern: str = "*") -> list[StateFile]:
        """State files of epochs up to our own whose name matches, newest epoch first, then by name."""
        spec = self._run.spec
        epochs = range(spec.claim.first_epoch, spec.claim.epoch + 1)
        found = []
        for info in self.store.list(spec.state_folder):
            epoch_text, _, name = info.key.removeprefix(f"{spec.state_folder}/").partition("/")
            if epoch_text.isdigit() and int(epoch_text) in epochs and fnmatch.fnmatchcase(name, pattern):
                found.append(StateFile(name, int(epoch_text), info.key, info.size))
        return sorted(found, key=lambda file: (-file.epoch, file.name))


@dataclass
class Run:
    """The run around a piece of work. `folder` is where `write` puts files; they become outputs of the step."""

    spec: RunSpec
    folder: str
    report: Report
    fanout: Fanout | None
    scratch_space: Scratch
    files: dict[str, FileInfo] = field(default_factory=dict)
    flows: list[Flow] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    stop: StopRequest = field(default_factory=StopRequest)
    """How whoever runs this work asks for its early end."""
    on_giving_up: Callable[[BaseException], None] | None = None
    _shard: str = ""
    _maps: int = 0
    _gangs: int = 0
    _lease_checked: float = field(default_factory=time.monotonic)
    _reported: float = 0.0

    @property
    def state(self) -> State:
        """Resumable work of this step."""
        return State(self)

    @property
    def scratch(self) -> Path:
        """A temporary folder of this machine, removed with the run."""
        return self.scratch_space.path

    @property
    def fleet(self) -> Fleet:
        """The machines of this step."""
        return self.spec.fleet

    def stop_requested(self) -> str | None:
        """Why this work is to save what it has and to end with `Preempted`; None while nobody asked for that."""
        return self.stop.reason

    def give_up(self, error: BaseException) -> None:
        """End this rank from beside its work, which hangs, as if the work had raised `error`, such as `Stalled`.

        For a watchdog's thread. All ranks of the gang are killed at once, this one too, and started again within the
        budget of the error's class; so whatever is to be kept of this process must be in the store before.
        """
        if self.on_giving_up is None:
            raise StepError("run.give_up works in a rank only") from error
        self.on_giving_up(error)

    # --- outputs ---

    @contextlib.contextmanager
    def write(self, name: str) -> Iterator[ChecksummedWriter]:
        """A binary stream that becomes the step's output file `name` when the block ends well."""
        if name in self.files:
            raise StepError(f"{self.spec.display} writes the file {name!r} twice")
        self.check_lease_now_and_then()
        key = f"{self.folder}/{name}"
        with self.spec.store.writer(key) as stream:
            stream.before_write = self.check_lease_now_and_then
            yield guarded(stream, self.spec.secrets.values.values(), f"the file {name!r} of {self.spec.display}")
        self._add(FileInfo(name, key, stream.size, stream.sha256))

    def write_bytes(self, name: str, data: bytes) -> None:
        """An output file of bytes."""
        with self.write(name) as stream:
            stream.write(data)

    def write_json(self, name: str, value: Any) -> None:
        """An output file of JSON."""
        self.write_bytes(name, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False).encode())

    def publish(self, name: str, key: str, *, sha256: str | None = None) -> None:
        """Make an object that lies in the store already (a checkpoint in the state) the output file `name`.

        Its digest is computed unless the caller knows it.
        """
        size = self.spec.store.size(key)
        if size is None:
            raise StepError(f"{self.spec.display} publishes {name!r}, but nothing lies under {key}")
        if sha256 is None:
            digest = hashlib.sha256()
            with self.spec.store.open(key) as source:
                while chunk := source.read(1 << 22):
                    digest.update(chunk)
            sha256 = digest.hexdigest()
        self._add(FileInfo(name, key, size, sha256))

    def _add(self, file: FileInfo) -> None:
        if file.name in self.files:
            raise StepError(f"{self.spec.display} has two output files called {file.name!r}")
        self.files[file.name] = file

    # --- from one part of the step to the next ---

    def store_intermediate(self, name: str, data: bytes) -> Intermediate:
        """Leave bytes for a later part of this step, in its state; see `Intermediate`. No file of the output."""
        self.check_lease_now_and_then()
        folder = self.folder if self._shard else f"{self.state.folder}/body-{uuid.uuid4().hex[:8]}"
        key = f"{folder}/{name}"
        refuse_exposed_bytes(data, f"the intermediate file {name!r} of {self.spec.display}")
        self.spec.store.put(key, data)
        return Intermediate(name, len(data), hashlib.sha256(data).hexdigest(), key, self._shard)

    def load_intermediate(self, file: Intermediate) -> bytes:
        """The bytes of an intermediate file.

        Raises:
            StepError: it is missing or damaged; the next run makes it again, and nothing else.
        """
        return load_intermediate(self.spec.store, file, self.spec.display)

    # --- evidence and progress ---

    def account(self, flow: Flow) -> None:
        """Give evidence of what became of the input; it is checked at once, and kept in the record."""
        flow.check(self.spec.display)
        self.flows.append(flow)

    def remark(self, text: str) -> None:
        """Tell people, in one line, what they must know although the step ends well; in a step's body only.

        It stands on the step's line of the console, in its record, in `marin show` and `marin status`.
        """
        if self.fanout is None:
            raise StepError("run.remark works in a step's body only; return what a shard or a rank found")
        logger.warning("%s", text)
        self.remarks.append(" ".join(text.split()))

    def progress(self, done: float, total: float | None = None, unit: str = "docs", **figures: float) -> None:
        """Show how far the work is. Cheap: most calls are dropped."""
        now = time.monotonic()
        if now - self._reported >= PROGRESS_SECONDS or (total is not None and done >= total):
            self._reported = now
            self.report({"done": done, "total": total, "unit": redact(unit), "figures": figures})

    # --- the lease ---

    def check_lease(self) -> None:
        """Raise `LeaseLost` when another run has taken the step over. To be called before every finish mark."""
        self._lease_checked = time.monotonic()
        check_lease(self.spec.store, self.spec.claim)

    def check_lease_now_and_then(self) -> None:
        """`check_lease`, unless it was checked within the last seconds."""
        if time.monotonic() - self._lease_checked > LEASE_CHECK_SECONDS:
            self.check_lease()

    # --- fanning out ---

    def map(
        self, fn: Callable[[Any], R], items: Sequence[Any], *, unit: str = "shards", memory_gb: float | None = None
    ) -> list[R]:
        """Run `fn(item)` for every item over the cluster; results in item order.

        A finished item is durable: it is not run again after a crash, as long as item and code are the same. Files
        that `fn` writes through `current_run().write` become output files of the step, so their names must differ.
        """
        fanout = self._fanout("run.map")
        number = self._maps
        self._maps += 1
        tasks = [
            ShardTask(index, self._shard_key(number, index, fn, item), fn, item, memory_gb)
            for index, item in enumerate(items)
        ]
        outcomes = self._finished_shards(number, tasks)
        self.progress(len(outcomes), len(tasks), unit)
        for index, outcome in fanout.map(self.spec, [task for task in tasks if task.index not in outcomes]):
            outcomes[index] = outcome
            self.progress(len(outcomes), len(tasks), unit)
        merged: dict[str, Flow] = {}
        for index in range(len(tasks)):
            for file in outcomes[index].files:
                self._add(file)
            for flow in outcomes[index].flows:
                merged[flow.unit] = _add_flows(merged.get(flow.unit, Flow(flow.unit, 0, 0)), flow)
        self.flows.extend(merged.values())
        kind = typing.get_type_hints(fn).get("return", Any)
        return [decode(outcomes[index].result, kind, _no_artifact) for index in range(len(tasks))]

    def _shard_key(self, number: int, index: int, fn: Callable[[Any], Any], item: Any) -> str:
        code = f"{self.spec.code_digest} {fn.__module__}:{fn.__qualname__} "
        content = hashlib.sha256(code.encode() + _stable_bytes(item)).hexdigest()
        return f"map{number:02d}/{index:05d}-{content[:12]}"

    def _finished_shards(self, number: int, tasks: Sequence[ShardTask]) -> dict[int, ShardOutcome]:
        wanted = {f"{task.key}/done.json": task.index for task in tasks}
        outcomes: dict[int, ShardOutcome] = {}
        found = self.state.find(f"map{number:02d}/*/*.json")
        damaged = {file.key.removesuffix(DAMAGED_MARK) for file in found if file.key.endswith(f"/{DAMAGED_MARK}")}
        for file in found:
            index = wanted.get(file.name)
            if index is not None and index not in outcomes and file.key.removesuffix("done.json") not in damaged:
                outcomes[index] = ShardOutcome.from_json(self.spec.store.read(file.key))
        return outcomes

    def gang(self, entry: Callable[[Any], Any], payload: Any, *, sizes: Sequence[int] = ()) -> list[Any]:
        """Run `entry(payload)` in one process per worker of the fleet, as ranks of one torchrun-like world.

        RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set. A dead rank ends all of
        them, and the gang is started again; `entry` goes on from `current_run().state`. Returns each rank's result.

        With `sizes` the gang may have any of these numbers of workers: the largest there is room for, and another at
        a later start (`fleet.elastic`). `entry` reads WORLD_SIZE, or `current_run().fleet.workers`.
        """
        fanout = self._fanout("run.gang")
        outcomes = fanout.gang(self.spec, entry, payload, self.report, sizes)
        for outcome in outcomes:
            for file in outcome.files:
                self._add(file)
            self.flows.extend(outcome.flows)
        return [outcome.result for outcome in outcomes]

    def _fanout(self, what: str) -> Fanout:
        if self.fanout is None:
            raise StepError(f"{what} works in a step's body only, not inside a shard or a rank")
        if not self.spec.fans_out:
            raise StepError(f"{self.spec.name} calls {what}: declare it with @step(…, fans_out=True)")
        return self.fanout


def _stable_bytes(item: Any) -> bytes:
    """The same bytes for an equal item in every process; a pickle depends on hash seeds and on shared objects."""
    dependencies: list[tuple[str, Any]] = []
    try:
        form = canonical(item, Any, "item", dependencies)
        return dumps([form, [dependency_identity(artifact, {}) for _, artifact in dependencies]]).encode()
    except UnstableValue:
        return pickle.dumps(item, protocol=5)


def _add_flows(one: Flow, other: Flow) -> Flow:
    reasons = {
        reason: one.dropped.get(reason, 0) + other.dropped.get(reason, 0) for reason in {**one.dropped, **other.dropped}
    }
    return Flow(one.unit, one.read + other.read, one.kept + other.kept, reasons)


def _no_artifact(reference: Reference, kind: type[Artifact]) -> Artifact:
    raise StepError(f"a shard returned an artifact ({reference['$artifact']}); only a step can")


_current: contextvars.ContextVar[Run | None] = contextvars.ContextVar("marin_run", default=None)


def current_run() -> Run:
    """The run around the calling code."""
    run = _current.get()
    if run is None:
        raise StepError("there is no run here: current_run() works inside a step, a shard function or a rank")
    return run


@contextlib.contextmanager
def entered(run: Run) -> Iterator[Run]:
    """Make a run the current one for a block."""
    token = _current.set(run)
    try:
        yield run
    finally:
        _current.reset(token)


def run_shard(spec: RunSpec, task: ShardTask, scratch: Scratch, report: Report) -> ShardOutcome:
    """Do one shard in this process and leave its finish mark in the state."""
    folder = f"{spec.state_folder}/{spec.claim.epoch:06d}/{task.key}"
    run = Run(spec, f"{folder}/{uuid.uuid4().hex[:8]}", report, None, scratch, _shard=folder)
    with available(spec.secrets), entered(run):
        result = encode(task.function(task.item), home=spec.store.url)
        outcome = ShardOutcome(result, tuple(run.files.values()), tuple(run.flows))
        refuse_exposed(
            [outcome.result, outcome.files, outcome.flows], f"the manifest of shard {task.index} of {spec.display}"
        )
        return _finished(run, outcome, folder)


def _finished(run: Run, outcome: ShardOutcome, folder: str) -> ShardOutcome:
    """Leave a shard's finish mark, or take the outcome of whoever was first."""
    spec = run.spec
    run.check_lease()
    try:
        spec.store.create(f"{folder}/done.json", outcome.to_json())
    except AlreadyExists:
        return ShardOutcome.from_json(spec.store.read(f"{folder}/done.json"))
    return outcome


def run_rank(
    spec: RunSpec,
    folder: str,
    entry: Callable[[Any], Any],
    payload: Any,
    scratch: Scratch,
    report: Report,
    stop: StopRequest | None = None,
    on_giving_up: Callable[[BaseException], None] | None = None,
) -> RankOutcome:
    """Do one rank's part in this process. `stop` is through which it is asked to end early, and `on_giving_up` how
    whoever watches it ends it although its work hangs.
    """
    run = Run(spec, folder, report, None, scratch, stop=stop or StopRequest(), on_giving_up=on_giving_up)
    with available(spec.secrets), entered(run):
        result = encode(entry(payload), home=spec.store.url)
        refuse_exposed(result, f"the result of a rank of {spec.display}")
    return RankOutcome(result, tuple(run.files.values()), tuple(run.flows))
