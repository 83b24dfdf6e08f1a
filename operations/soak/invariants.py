"""What must hold of a prefix after anything that happened to it. Looks at the bytes, not at the engine's word."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marin.storage import MissingObject, Store

RECORD = re.compile(r"_steps/(?P<step>.+?-[0-9a-f]{10})(?:\.r(?P<generation>\d+))?\.json")
SHARD = re.compile(r".*?(?P<short>[0-9a-f]{10})/state/\d{6}/(?P<map>map\d\d)/(?P<shard>[^/]+)/done\.json")


@dataclass(frozen=True)
class Finished:
    """What is done in a prefix: `records` as words like `soak.source-0123456789.r2`, `shards` as (step, shard)."""

    records: frozenset[str]
    shards: frozenset[tuple[str, str]]


def finished(store: Store) -> Finished:
    """The commits and finish marks of a prefix."""
    keys = [info.key for info in store.list()]
    records = (key.partition("/")[2].removesuffix(".json") for key in keys if RECORD.fullmatch(key))
    marks = [found for found in map(SHARD.fullmatch, keys) if found]
    return Finished(frozenset(records), frozenset((m["short"], f"{m['map']}.{m['shard']}") for m in marks))


@dataclass(frozen=True)
class Note:
    """One execution: of which step (its record's word), which part (shard or rank; empty for the body), by whom.

    `since` is in nanoseconds of the file system's clock, as the times of records are.
    """

    step: str
    part: str
    epoch: int
    pid: int
    since: int


def notes(ledger: Path) -> list[Note]:
    """Every execution that a ledger holds."""
    found = []
    for path in (ledger / "executions").iterdir():
        what, _, who = path.name.partition("@")
        step, _, part = what.partition("+")
        epoch, pid, _ = who.split(".")
        found.append(Note(step, part, int(epoch), int(pid), path.stat().st_mtime_ns))
    return found


def executions(ledger: Path) -> Counter[tuple[str, str]]:
    """How often each (step, part) was begun."""
    return Counter((note.step, note.part) for note in notes(ledger))


def records(store: Store) -> dict[str, dict[str, Any]]:
    """The records of a prefix by key."""
    keys = [info.key for info in store.list("_steps")]
    return {key: json.loads(store.read(key)) for key in keys if RECORD.fullmatch(key)}


def damage(store: Store) -> list[str]:
    """Records whose files are not there with the size and digest that they say, or whose upstream has no record."""
    found = []
    known = records(store)
    for key, record in known.items():
        for file in record["files"]:
            try:
                data = store.read(file["key"])
            except MissingObject:
                found.append(f"{key}: {file['key']} is missing")
                continue
            if len(data) != file["size"] or hashlib.sha256(data).hexdigest() != file["sha256"]:
                found.append(f"{key}: {file['key']} has other bytes than the record says")
        found += [f"{key}: no {up['record']}" for up in record["dependencies"] if up["record"] not in known]
    return found


def newest(store: Store) -> dict[str, dict[str, Any]]:
    """The record of the highest generation of each step, by its name and short identity."""
    found: dict[str, dict[str, Any]] = {}
    for key, record in records(store).items():
        match = RECORD.fullmatch(key)
        assert match is not None
        if match["step"] not in found or found[match["step"]]["generation"] < record["generation"]:
            found[match["step"]] = record
    return found


def stale(store: Store) -> list[str]:
    """Newest records that were made from another output than the newest of an upstream."""
    latest = newest(store)
    outputs = {record["identity"]: record["output_digest"] for record in latest.values()}
    return [
        f"{name} was made from an earlier output of {up['name']}"
        for name, record in latest.items()
        for up in record["dependencies"]
        if outputs[up["identity"]] != up["output_digest"]
    ]


def outputs(store: Store) -> dict[str, str]:
    """What everything came to: output digests of the newest records."""
    return {name: record["output_digest"] for name, record in newest(store).items()}


def state(store: Store, step: str) -> dict[str, set[bytes]]:
    """What lies in the state of a step, by its name within an epoch: one value where all epochs agree."""
    found: dict[str, set[bytes]] = {}
    for info in store.list(step):
        _, inside, rest = info.key.partition("/state/")
        if inside:
            found.setdefault(rest.partition("/")[2], set()).add(store.read(info.key))
    return found


def repeated(before: Finished, noted: Counter[tuple[str, str]], after: Counter[tuple[str, str]]) -> list[str]:
    """What was finished `before`, and was begun again between the two counts."""
    more = {what: count - noted[what] for what, count in after.items() if count > noted[what]}
    found = [f"{step} was committed and ran again" for step, part in more if step in before.records]
    for step, part in more:
        match = RECORD.fullmatch(f"_steps/{step}.json")
        assert match is not None
        if part and (match["step"][-10:], part) in before.shards:
            found.append(f"the shard {part} of {step} was finished and ran again")
    return found
