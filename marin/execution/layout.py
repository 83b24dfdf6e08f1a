"""Where things lie in a prefix."""

from __future__ import annotations

import re

RECORDS = "_steps"
CLAIMS = "_claims"
RUNS = "_runs"
FAILED = "_failed"
PINS = "_pins"
CONTENT = "_content"
EXTERNALS = "_externals"

SHORT = 10
RECORD_NAME = re.compile(r"([a-z0-9_.]+)-([0-9a-f]{10})(?:\.r(\d+))?\.(json|tombstone)")
RECORD_SUFFIX = ".json"
TOMBSTONE_SUFFIX = ".tombstone"
PLAIN_ID = -SHORT - len(RECORD_SUFFIX)
PLAIN_NAME_END = PLAIN_ID - 1


def short(identity: str) -> str:
    """The digits of an identity that go into names."""
    return identity[:SHORT]


def flat(name: str) -> str:
    """A step's name as one path part."""
    return name.replace("/", ".")


def unflat(name: str) -> str:
    """A step's name as people write it, from one path part."""
    return name.replace(".", "/")


def step_folder(name: str, label: str | None, identity: str) -> str:
    """The folder of a step's attempts and state."""
    return f"{name}/{label}-{short(identity)}" if label else f"{name}/{short(identity)}"


def attempt_folder(folder: str, attempt: int, run: str) -> str:
    """Where an attempt's own files go: no other attempt, of this run or another, has the same."""
    return f"{folder}/a{attempt}-{run.rpartition('-')[2]}"


def record_key(name: str, identity: str, generation: int = 1) -> str:
    """The key of a step's record; a redo counts generations up."""
    suffix = "" if generation == 1 else f".r{generation}"
    return f"{RECORDS}/{flat(name)}-{short(identity)}{suffix}.json"


def tombstone_key(name: str, identity: str, generation: int = 1) -> str:
    """The key that says that a record's bytes were removed. It stands beside the record, so one listing shows both."""
    return record_key(name, identity, generation).removesuffix(RECORD_SUFFIX) + TOMBSTONE_SUFFIX


def parse_record_key(key: str) -> tuple[str, str, int, bool] | None:
    """(flat name, short identity, generation, is a tombstone) of a key of `_steps/`, or None for another key."""
    if key[PLAIN_NAME_END:PLAIN_ID] == "-" and key.endswith(RECORD_SUFFIX):  # first records, which are nearly all
        return key[len(RECORDS) + 1 : PLAIN_NAME_END], key[PLAIN_ID : -len(RECORD_SUFFIX)], 1, False
    match = RECORD_NAME.fullmatch(key, len(RECORDS) + 1)
    if match is None:
        return None
    name, identity, generation, kind = match.groups()
    return name, identity, int(generation or 1), kind == "tombstone"


def claim_folder(name: str, identity: str) -> str:
    """The folder of a step's claims."""
    return f"{CLAIMS}/{flat(name)}-{short(identity)}"


def claim_key(name: str, identity: str, epoch: int) -> str:
    """The key of one claim; each holder has an epoch of its own."""
    return f"{claim_folder(name, identity)}/{epoch:06d}.json"


def content_key(content: str) -> str:
    """The key that leads from what a step would read to a record of what came out."""
    return f"{CONTENT}/{content}.json"


def run_folder(run: str) -> str:
    """The folder of a run."""
    return f"{RUNS}/{run}"


def beat_key(run: str) -> str:
    """The key of a run's heartbeat, the one object that is overwritten."""
    return f"{run_folder(run)}/beat"


def failure_folder(name: str, identity: str) -> str:
    """The folder of a step's failures."""
    return f"{FAILED}/{flat(name)}-{short(identity)}"


def failure_key(name: str, identity: str, run: str, attempt: int) -> str:
    """The key of one failure's traceback."""
    return f"{failure_folder(name, identity)}/{run}-a{attempt}.json"
