"""Where things lie in a prefix."""

from __future__ import annotations

import re

RECORDS = "_steps"
CLAIMS = "_claims"
RUNS = "_runs"
FAILED = "_failed"

SHORT = 10
RECORD_NAME = re.compile(r"(?P<name>[a-z0-9_.]+)-(?P<id>[0-9a-f]{10})(?:\.r(?P<generation>\d+))?\.json")


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


def record_key(name: str, identity: str, generation: int = 1) -> str:
    """The key of a step's record; a redo counts generations up."""
    suffix = "" if generation == 1 else f".r{generation}"
    return f"{RECORDS}/{flat(name)}-{short(identity)}{suffix}.json"


def parse_record_key(key: str) -> tuple[str, str, int] | None:
    """(flat name, short identity, generation) of a record's key, or None for another key."""
    match = RECORD_NAME.fullmatch(key.removeprefix(f"{RECORDS}/"))
    if match is None:
        return None
    return match["name"], match["id"], int(match["generation"] or 1)


def claim_folder(name: str, identity: str) -> str:
    """The folder of a step's claims."""
    return f"{CLAIMS}/{flat(name)}-{short(identity)}"


def run_folder(run: str) -> str:
    """The folder of a run."""
    return f"{RUNS}/{run}"


def failure_folder(name: str, identity: str) -> str:
    """The folder of a step's failures."""
    return f"{FAILED}/{flat(name)}-{short(identity)}"


def failure_key(name: str, identity: str, run: str, attempt: int) -> str:
    """The key of one failure's traceback."""
    return f"{failure_folder(name, identity)}/{run}-a{attempt}.json"
