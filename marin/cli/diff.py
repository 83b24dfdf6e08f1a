"""`marin diff`: two steps, or two generations of one, side by side.

Exit codes are those of diff(1): 0 when they are equal, 1 when they differ, 2 when they cannot be compared.
"""

from __future__ import annotations

from collections.abc import Sequence

from marin.cli.arguments import USAGE_ERROR, fail
from marin.cli.explain import DIFFERENCES, print_causes
from marin.cli.status import moment
from marin.execution import StepError, layout
from marin.execution.planning.index import list_records
from marin.execution.reasons.comparison import Difference
from marin.execution.reasons.record_diff import FileChange, RecordDiff, diff_records
from marin.execution.reasons.selection import SHOWN, displays, find_record, keys_meant, none_there, several
from marin.execution.records import Record, load_record
from marin.storage import Store, StoreError

DIFFERENT = 1
FILES = 20
"""Files that are named unless all are asked for."""


def diff(store: Store, first: str, second: str | None, everything: bool) -> int:
    """Print what differs; returns 0 when the steps are equal and 1 when they differ, and exits with 2 for trouble."""
    try:
        old, new = (find_record(store, first), find_record(store, second)) if second else both(store, first)
        found = diff_records(store, old, new)
    except (StepError, StoreError, OSError) as error:
        fail(str(error), USAGE_ERROR)
    for mark, record in (("---", old), ("+++", new)):
        generation = f" generation {record.generation}" if record.generation > 1 else ""
        print(f"{mark} {record.display}{generation}, made {moment(record.provenance['finished'])}")
    print_diff(found, everything)
    return 0 if found.is_equal else DIFFERENT


def both(store: Store, what: str) -> tuple[Record, Record]:
    """The two records that one name means, older first: two steps, or the last two generations of one."""
    index = list_records(store)
    keys = keys_meant(store, what, index)
    if not keys:
        raise none_there(store, what, index)
    if len(keys) > 2:
        raise several(what, displays(store, keys[:SHOWN]), len(keys))
    records = sorted((load_record(store, key) for key in keys), key=lambda one: float(one.provenance["finished"]))
    if len(records) == 2:
        return records[0], records[1]
    newest = records[0]
    if newest.generation == 1:
        raise StepError(f"{what!r} is one step of one generation, {newest.display}; name another to compare it with")
    return load_record(store, layout.record_key(newest.name, newest.identity, newest.generation - 1)), newest


def print_diff(found: RecordDiff, everything: bool) -> None:
    """Print every part that differs."""
    if found.old.identity == found.new.identity:
        _line("recipe", "the same")
    else:
        print_causes("recipe", found.causes, None if everything else DIFFERENCES)
    if found.code_differs:
        _line("code", f"{found.old.code_digest} → {found.new.code_digest}")
    _print_differences("environment", found.environment)
    _print_differences("flows", found.flows)
    if found.same_output:
        _line("output", "the same")
    else:
        _line("output", f"{layout.short(found.old.output_digest)} → {layout.short(found.new.output_digest)}")
    _print_differences("result", found.result)
    _print_files(found, everything)


def _line(name: str, text: str) -> None:
    print(f"  {name:<11} {text}")


def _print_differences(name: str, differences: Sequence[Difference]) -> None:
    for number, difference in enumerate(differences):
        _line("" if number else name, difference.text(str))


def _print_files(found: RecordDiff, everything: bool) -> None:
    if not found.files:
        return
    added = sum(file.old is None for file in found.files)
    removed = sum(file.new is None for file in found.files)
    changed = len(found.files) - added - removed
    equal = len(found.new.files) - added - changed
    _line("files", f"{added} added, {removed} removed, {changed} changed, {equal} equal")
    shown = found.files if everything else found.files[:FILES]
    for file in shown:
        _line("", _file_text(file))
    if len(shown) < len(found.files):
        _line("", f"and {len(found.files) - len(shown)} more (--all shows them)")


def _file_text(file: FileChange) -> str:
    if file.old is None:
        return f"+ {file.name} {file.new.size if file.new is not None else 0} B"
    if file.new is None:
        return f"- {file.name} {file.old.size} B"
    digests = f"{layout.short(file.old.sha256)} → {layout.short(file.new.sha256)}"
    sizes = f"{file.old.size} → {file.new.size} B" if file.old.size != file.new.size else f"{file.new.size} B"
    return f"~ {file.name} {sizes}, {digests}"
