"""`marin verify`: whether what lies in a prefix is what its records say."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from marin.cli.arguments import RUN_ERROR
from marin.execution import StepError, layout
from marin.execution.planning.index import RecordIndex, list_records
from marin.execution.reasons.selection import keys_meant, none_there
from marin.execution.records import load_record
from marin.execution.running.console import number
from marin.execution.upkeep.verify import Checked, upstream_keys, verify_steps
from marin.storage import Store


def verify(store: Store, what: str | None, *, sizes: bool, upstream: bool) -> int:
    """Check files against records; prints one line for each that is damaged, with the step and the way out."""
    index = list_records(store)
    if not index.generations:
        raise StepError(f"no finished step in {store.url}, so nothing was checked; is --prefix right?")
    keys = _keys(store, what, index, upstream=upstream)
    buried = {layout.tombstone_key(*step) for step in index.tombstones}
    wanted = [key for key in keys if key.removesuffix(layout.RECORD_SUFFIX) + layout.TOMBSTONE_SUFFIX not in buried]
    listed = {info.key: info.size for page in store.pages() for info in page} if sizes and what is None else None
    last = Checked(0, len(wanted), 0, 0)
    with status_line() as line:

        def progress(checked: Checked) -> None:
            nonlocal last
            last = checked
            line(f"{checked.steps} of {checked.all_steps} steps, {number(checked.size)}B")

        found = verify_steps(store, wanted, digests=not sizes, listed=listed, progress=progress)
    for key, damages in found.items():
        _tell(store, key, damages)
    gone = f", {len(keys) - len(wanted)} more without bytes (tombstone)" if len(keys) > len(wanted) else ""
    outcome = f"{len(found)} damaged" if found else "all as recorded"
    checked_all = f"{counted(last.steps, 'step')}, {counted(last.files, 'file')}, {number(last.size)}B"
    print(f"{checked_all} checked{gone}: {outcome}")
    return RUN_ERROR if found else 0


def _keys(store: Store, what: str | None, index: RecordIndex, *, upstream: bool) -> list[str]:
    if what is None:
        return [layout.record_key(*step, generation) for step, generation in sorted(index.generations.items())]
    keys = keys_meant(store, what, index)
    if not keys:
        raise none_there(store, what, index)
    return upstream_keys(store, keys, index) if upstream else keys


def _tell(store: Store, key: str, damages: list[str]) -> None:
    try:
        record = load_record(store, key)
    except StepError as error:
        print(f"damaged: {error}")
        return
    for damage in damages:
        print(f"damaged: {record.display}: {damage}; {record.remedy}")


def counted(count: int, what: str) -> str:
    """A number of things, in words."""
    return f"{number(count)} {what}{'' if count == 1 else 's'}"


@contextlib.contextmanager
def status_line() -> Iterator[StatusLine]:
    """A line on a terminal that says how far a command is, and is gone when the block ends."""
    line = StatusLine()
    try:
        yield line
    finally:
        line("")


class StatusLine:
    """Overwrites itself on standard error where that is a terminal; says nothing anywhere else."""

    def __call__(self, text: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{text}")
            sys.stderr.flush()
