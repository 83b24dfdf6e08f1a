"""Stores under test, and what other processes do to them."""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from marin.storage import AlreadyExists, ChecksummedWriter, Store, open_store

KINDS = ("local", "memory")

SPECIAL_NAMES = (
    "plain.txt",
    "with space.txt",
    " leading and trailing ",
    "hash#1.txt",
    "percent%20.txt",
    "100%.txt",
    "question?.txt",
    "plus+sign.txt",
    "brackets[1].txt",
    "brace{a}.txt",
    "star*.txt",
    "star.txt",
    "semi;colon.txt",
    "amp&.txt",
    "caf\u00e9.txt",
    "cafe\u0301.txt",
    "日本語.txt",
    "quote'.txt",
    'double".txt',
    "back\\slash.txt",
    "colon:1.txt",
    "equals=1/part.txt",
    "dots..txt",
    "...",
    ".hidden",
    "tilde~.txt",
    "~",
    "$HOME.txt",
    "sub dir/#x/file.txt",
    "trailing./f.txt",
    "-dash",
)
"""The two spellings of café are different names: a key is bytes, nobody normalises it."""


left_open: list[ChecksummedWriter] = []
"""Held until the interpreter ends."""


def store_of(kind: str, folder: Path) -> Store:
    """A fresh, empty store."""
    return open_store(folder / "prefix" if kind == "local" else f"memory://{uuid.uuid4().hex}/prefix")


def wait_for(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Return once the condition holds; fail after a while."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"still not so after {seconds} s")
        time.sleep(0.01)


def create_once(url: str, key: str, data: bytes, go: Path) -> bool:
    """Wait for the starting signal and try to create; whether this was the winner."""
    store = open_store(url)
    wait_for(go.exists)
    try:
        store.create(key, data)
    except AlreadyExists:
        return False
    return True


def main() -> None:
    """`race URL KEY GO TEXT` | `creates URL` | `writes URL` | `leaves URL`: what a process does that a test starts."""
    command, url, *rest = sys.argv[1:]
    store = open_store(url)
    if command == "race":
        key, go, text = rest
        print(int(create_once(url, key, text.encode() * 1000, Path(go))))
    elif command == "creates":
        for index in range(1_000_000):
            store.create(f"records/{index:07d}", bytes([index % 251]) * 300_000)
    elif command == "writes":
        for index in range(1_000_000):
            with store.writer(f"data/{index:07d}") as stream:
                for _ in range(30):
                    stream.write(bytes([index % 251]) * 10_000)
    elif command == "leaves":
        small, big = store.writer("data/small"), store.writer("data/big")
        left_open.extend((small, big))
        small.write(b"x" * 1_000)
        for _ in range(9):
            big.write(bytes(5_000_000))
        sys.exit(3)
    os._exit(0)


if __name__ == "__main__":
    main()
