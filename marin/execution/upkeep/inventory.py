"""What lies in a prefix, by step: one listing, sorted into records, data, claims, failures and runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from marin.execution import layout
from marin.execution.planning.index import StepKey
from marin.storage import ObjectInfo, Store

DATA_KEY = re.compile(
    r"(?P<name>[a-z0-9_]+(?:/[a-z0-9_]+)*?)/(?:[^/]+-)?(?P<id>[0-9a-f]{10})/"
    r"(?:a\d+-[0-9a-f]+|state/(?P<epoch>\d+))/."
)
STEP_NAME = re.compile(r"([a-z0-9_.]+)-([0-9a-f]{10})")


@dataclass(frozen=True)
class DataObject:
    """An object in a step's folder. `epoch` is that of the state it belongs to, None for an attempt's own files."""

    key: str
    size: int
    epoch: int | None


@dataclass
class StepObjects:
    """All objects of one step. `records` and `tombstones` are by generation, `claims` by epoch, sizes in bytes."""

    records: dict[int, ObjectInfo] = field(default_factory=dict)
    tombstones: dict[int, ObjectInfo] = field(default_factory=dict)
    data: list[DataObject] = field(default_factory=list)
    claims: dict[int, list[ObjectInfo]] = field(default_factory=dict)
    failures: list[ObjectInfo] = field(default_factory=list)

    @property
    def newest(self) -> int:
        """The generation that answers; 0 without a record."""
        return max(self.records, default=0)

    @property
    def epoch(self) -> int:
        """The newest claim's epoch; 0 without a claim."""
        return max((epoch for epoch, infos in self.claims.items() if _is_claim(infos)), default=0)

    @property
    def is_released(self) -> bool:
        """Whether the newest claim was given up by its holder."""
        return any(info.key.endswith(".released") for info in self.claims.get(self.epoch, ()))


def _is_claim(infos: list[ObjectInfo]) -> bool:
    return any(info.key.endswith(".json") for info in infos)


@dataclass
class Inventory:
    """The objects of a prefix. `others` counts (objects, bytes) that are no step's and no run's: they are nobody's."""

    steps: dict[StepKey, StepObjects] = field(default_factory=dict)
    runs: dict[str, list[ObjectInfo]] = field(default_factory=dict)
    content: list[ObjectInfo] = field(default_factory=list)
    externals: list[ObjectInfo] = field(default_factory=list)
    objects: int = 0
    size: int = 0
    others: tuple[int, int] = (0, 0)

    def step(self, key: StepKey) -> StepObjects:
        """The objects of a step, none as long as nothing was added."""
        found = self.steps.get(key)
        if found is None:
            found = self.steps[key] = StepObjects()
        return found

    def records(self) -> Iterator[tuple[StepKey, int, str]]:
        """(step, generation, key) of every record."""
        for key, objects in self.steps.items():
            for generation, info in objects.records.items():
                yield key, generation, info.key

    def add(self, info: ObjectInfo) -> None:
        """Sort a listed object in."""
        self.objects += 1
        self.size += info.size
        place, _, rest = info.key.partition("/")
        sorted_in = _PLACES.get(place, _add_data)(self, info, rest)
        if not sorted_in:
            self.others = (self.others[0] + 1, self.others[1] + info.size)


def take_inventory(store: Store) -> Inventory:
    """The inventory of a whole prefix."""
    inventory = Inventory()
    for page in store.pages():
        for info in page:
            inventory.add(info)
    return inventory


def _add_record(inventory: Inventory, info: ObjectInfo, rest: str) -> bool:
    parsed = layout.parse_record_key(info.key)
    if parsed is None:
        return False
    name, identity, generation, is_tombstone = parsed
    objects = inventory.step((name, identity))
    (objects.tombstones if is_tombstone else objects.records)[generation] = info
    return True


def _add_claim(inventory: Inventory, info: ObjectInfo, rest: str) -> bool:
    folder, _, file = rest.partition("/")
    step, epoch = _step_of(folder), file.partition(".")[0]
    if step is None or not epoch.isdigit():
        return False
    inventory.step(step).claims.setdefault(int(epoch), []).append(info)
    return True


def _add_failure(inventory: Inventory, info: ObjectInfo, rest: str) -> bool:
    step = _step_of(rest.partition("/")[0])
    if step is None:
        return False
    inventory.step(step).failures.append(info)
    return True


def _add_run(inventory: Inventory, info: ObjectInfo, rest: str) -> bool:
    run, _, file = rest.partition("/")
    if not file:
        return False
    inventory.runs.setdefault(run, []).append(info)
    return True


def _add_content(inventory: Inventory, info: ObjectInfo, rest: str) -> bool:
    inventory.content.append(info)
    return True


def _add_external(inventory: Inventory, info: ObjectInfo, rest: str) -> bool:
    inventory.externals.append(info)
    return True


def _is_known(inventory: Inventory, info: ObjectInfo, rest: str) -> bool:
    return True


def _add_data(inventory: Inventory, info: ObjectInfo, rest: str) -> bool:
    match = DATA_KEY.match(info.key)
    if match is None:
        return False
    epoch = int(match["epoch"]) if match["epoch"] is not None else None
    inventory.step((layout.flat(match["name"]), match["id"])).data.append(DataObject(info.key, info.size, epoch))
    return True


_PLACES = {
    layout.RECORDS: _add_record,
    layout.CLAIMS: _add_claim,
    layout.FAILED: _add_failure,
    layout.RUNS: _add_run,
    layout.CONTENT: _add_content,
    layout.EXTERNALS: _add_external,
    layout.PINS: _is_known,
}


def _step_of(folder: str) -> StepKey | None:
    match = STEP_NAME.fullmatch(folder)
    return (match[1], match[2]) if match is not None else None
