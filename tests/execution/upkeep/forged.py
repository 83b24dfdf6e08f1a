"""Prefixes written by hand: records, files, claims and runs as they would lie there, of graphs that never ran."""

from __future__ import annotations

import hashlib
import json
import random
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from marin.execution import layout
from marin.execution.artifact import FileInfo
from marin.execution.identity import digest
from marin.execution.records import Dependency, Record, output_digest
from marin.storage import Store

LONG_AGO = 1_700_000_000.0


def recipe_of(name: str, config: object = None) -> dict[str, object]:
    """The recipe of a step: its name and a config. What it was made from stands in its record alone."""
    return {"schema": 1, "name": name, "version": "1", "config": config, "dependencies": []}


def identity_of(name: str) -> str:
    """The identity of a step of that name without a config."""
    return digest(recipe_of(name))


def run_of(number: int, age: float = 0.0) -> str:
    """A run's name that began `age` seconds ago, or long ago."""
    began = time.time() - age if age else LONG_AGO + number
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(began))}-{number:08x}"


@dataclass
class Forge:
    """Writes into a store; `records` are those that were written, by key."""

    store: Store
    records: dict[str, Record] = field(default_factory=dict)

    def file(self, key: str, data: bytes = b"data") -> FileInfo:
        """An object, as a record would list it."""
        if not self.store.exists(key):
            self.store.create(key, data)
        return FileInfo(key.rpartition("/")[2], key, len(data), hashlib.sha256(data).hexdigest())

    def step(
        self,
        name: str,
        files: Iterable[FileInfo] | None = None,
        *,
        generation: int = 1,
        above: Iterable[Record] = (),
        refers_to: Iterable[Record] = (),
        finished: float = LONG_AGO,
        epoch: int = 1,
        adopted: bool = False,
        config: object = None,
        label: str | None = None,
    ) -> Record:
        """A committed step of the name, whose identity follows from the name."""
        identity = identity_of(name)
        folder = layout.attempt_folder(layout.step_folder(name, label, identity), generation, run_of(generation))
        listed = tuple(files) if files is not None else (self.file(f"{folder}/out.txt", name.encode()),)
        above, refers_to = tuple(above), tuple(refers_to)
        outputs = {one.key: one.output_digest for one in refers_to}
        result = {"parts": [{"$artifact": one.key} for one in refers_to]}
        record = Record(
            key=layout.record_key(name, identity, generation),
            name=name,
            version="1",
            label=label,
            identity=identity,
            generation=generation,
            path=folder,
            result_type="tests.execution.graphs:Text",
            result=result,
            files=listed,
            flows=(),
            recipe=recipe_of(name, config),
            dependencies=tuple(
                Dependency(f"from[{i}]", one.name, one.identity, one.key, one.output_digest)
                for i, one in enumerate(above)
            ),
            output_digest=output_digest(listed, result, lambda reference: outputs[reference["$artifact"]]),
            code_digest="",
            provenance={
                "run": run_of(generation),
                "attempt": generation,
                "epoch": epoch,
                "host": "forge",
                "started": finished - 1,
                "finished": finished,
                **({"adopted": {"path": "elsewhere", "by": "copy"}} if adopted else {}),
            },
        )
        self.store.create(record.key, record.to_json())
        self.records[record.key] = record
        return record

    def tombstone(self, record: Record) -> None:
        """A tombstone over a record; its files stay where they are."""
        self.store.create(layout.tombstone_key(record.name, record.identity, record.generation), b"{}")

    def claim(
        self,
        name: str,
        epoch: int = 1,
        *,
        generation: int = 1,
        run: str = "",
        at: float = LONG_AGO,
        released: bool = False,
        host: str = "another",
    ) -> None:
        """A claim by a run of another host."""
        identity = identity_of(name)
        body = {
            "run": run or run_of(1),
            "host": host,
            "boot": "another boot",
            "pid_namespace": "another",
            "pid": 1,
            "started": "1",
            "generation": generation,
            "folder": layout.step_folder(name, None, identity),
            "first_epoch": 1,
            "time": at,
        }
        key = layout.claim_key(name, identity, epoch)
        self.store.create(key, json.dumps(body).encode())
        if released:
            self.store.create(key.removesuffix(".json") + ".released", b"{}")

    def run(self, run: str, steps: Iterable[str] = (), *, finished: bool = True, beat: float | None = None) -> str:
        """A run with its plan, which holds steps by their names."""
        folder = layout.run_folder(run)
        entries = [
            {
                "name": name,
                "label": None,
                "identity": identity_of(name),
                "path": name,
                "action": "will run",
                "reason": "",
                "upstream": [],
            }
            for name in steps
        ]
        self.store.create(f"{folder}/plan.json", json.dumps({"steps": entries, "targets": []}).encode())
        events = ["run.started", "run.finished"] if finished else ["run.started"]
        lines = "".join(json.dumps({"time": 1.0, "event": kind}) + "\n" for kind in events)
        self.store.create(f"{folder}/events-000001.jsonl", lines.encode())
        if beat is not None:
            self.store.put(layout.beat_key(run), json.dumps({"time": beat, "pid": 1, "period": 15.0}).encode())
        return run


def folder_of(name: str) -> str:
    """The folder of a step without a label."""
    return layout.step_folder(name, None, identity_of(name))


@dataclass(frozen=True)
class RandomPrefix:
    """A prefix of random steps: `names` in an order in which each comes after what it was made from."""

    names: tuple[str, ...]
    roots: tuple[str, ...]


def random_prefix(store: Store, seed: int, steps: int = 12) -> RandomPrefix:
    """Steps with random upstreams, generations, tombstones, references, shared files and litter; some are pinned.

    Every third step has litter of an attempt and of its state; some have no record at all.
    """
    draw = random.Random(seed)
    forge = Forge(store)
    done: list[Record] = []
    names = [f"test/s{number:02d}" for number in range(steps)]
    for number, name in enumerate(names):
        has_record = draw.random() < 0.85
        forge.claim(name, released=not has_record or draw.random() < 0.5)
        if draw.random() < 0.4:
            forge.file(f"{folder_of(name)}/a9-000000ff/litter")
        if draw.random() < 0.4:
            forge.file(f"{folder_of(name)}/state/000001/shard/litter")
        if draw.random() < 0.3:
            forge.file(f"{folder_of(name)}/state/000009/checkpoint")
        if not has_record:
            continue
        earlier = tuple(done)
        for generation in range(1, draw.choice((1, 1, 2, 3)) + 1):
            folder = f"{folder_of(name)}/a{generation}-0000000{number % 10}"
            own = [forge.file(f"{folder}/f{i}", f"{name} {i}".encode()) for i in range(draw.randrange(3))]
            state = (
                [forge.file(f"{folder_of(name)}/state/00000{generation}/g{generation}")] if draw.random() < 0.4 else []
            )
            borrowed = [file for one in done if draw.random() < 0.15 for file in one.files]
            names_seen = {file.name for file in own + state}
            shared = [file for file in {f.name: f for f in borrowed}.values() if file.name not in names_seen]
            record = forge.step(
                name,
                own + state + shared,
                generation=generation,
                epoch=generation,
                above=draw.sample(earlier, min(len(earlier), draw.randrange(3))),
                refers_to=draw.sample(earlier, min(len(earlier), draw.choice((0, 0, 1)))),
                adopted=draw.random() < 0.05,
            )
            done.append(record)
            if draw.random() < 0.1:
                forge.tombstone(record)
    return RandomPrefix(tuple(names), tuple(draw.sample(names, draw.randrange(3))))
