"""`marin status`, `show`, `ls` and `cat`: reading a prefix through its records."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import BinaryIO

from marin.execution import Artifact, StepError, layout
from marin.execution.artifact import bind
from marin.execution.claims import claim_state, process_is_gone
from marin.execution.console import number
from marin.execution.index import list_records
from marin.execution.records import Record, load_record
from marin.storage import MissingObject, Store


def records(store: Store) -> Iterator[Record]:
    """The answering record of every step of a prefix; a damaged one is named on standard error and left out."""
    for (name, identity), generation in sorted(list_records(store).generations.items()):
        try:
            yield load_record(store, layout.record_key(name, identity, generation))
        except StepError as error:
            print(f"damaged: {error}", file=sys.stderr)


def find_record(store: Store, what: str) -> Record:
    """The one step that a name, a name-id, a label or the start of an id means; `StepError` when it is none or many."""
    what = what.partition(" (")[0]  # a step as `marin ls` prints it, with its label
    flat = layout.flat(what)
    existing = list_records(store).generations
    hits = [
        (name, identity, generation)
        for (name, identity), generation in existing.items()
        if flat in (name, f"{name}-{identity}") or (len(what) >= 4 and identity.startswith(what))
    ]
    if not hits:
        labelled = [record for record in records(store) if what in (record.label, f"{record.name}/{record.label}")]
        if len(labelled) == 1:
            return labelled[0]
        hits = [(layout.flat(record.name), layout.short(record.identity), record.generation) for record in labelled]
    if not hits:
        names = ", ".join(sorted({layout.unflat(name) for name, _ in existing})) or "none"
        raise StepError(f"{store.url} has no step {what!r}; steps there: {names}")
    if len(hits) > 1:
        found = [load_record(store, layout.record_key(*hit)) for hit in hits]
        ways = ", ".join(one.display if one.label else f"{one.display} (no label)" for one in found)
        raise StepError(f"{what!r} is {len(hits)} steps: {ways}")
    return load_record(store, layout.record_key(*hits[0]))


def status(store: Store) -> int:
    """Print done, running and failed steps."""
    done = list(records(store))
    for record in done:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(record.provenance["finished"]))
        seconds = record.provenance["finished"] - record.provenance["started"]
        print(f"done     {record.display:<48} {when}  {seconds:8.1f}s  {number(record.size)}B")
    finished = {(layout.flat(record.name), layout.short(record.identity)) for record in done}
    for name, identity in sorted(_claimed(store) - finished):
        claim = claim_state(store, name, identity)
        if claim.holder is not None and not claim.released:
            gone = " (its process is gone: the next run takes it over)" if process_is_gone(claim.holder) else ""
            print(f"running  {layout.unflat(name)}-{identity}  by run {claim.holder.run} on {claim.holder.host}{gone}")
    for key in _newest_failures(store, finished):
        failure = json.loads(store.read(key))
        first = failure["message"].splitlines()[0] if failure["message"] else ""
        print(f"failed   {layout.unflat(key.split('/')[1])}  {failure['error']}: {first}  ({store.url_of(key)})")
    if not done:
        print(f"no finished step in {store.url}")
    return 0


def _claimed(store: Store) -> set[tuple[str, str]]:
    folders = {info.key.split("/")[1] for info in store.list(layout.CLAIMS)}
    return {(folder.rpartition("-")[0], folder.rpartition("-")[2]) for folder in folders}


def _newest_failures(store: Store, finished: set[tuple[str, str]]) -> list[str]:
    newest: dict[str, str] = {}
    for info in store.list(layout.FAILED):
        step = info.key.split("/")[1]
        if (step.rpartition("-")[0], step.rpartition("-")[2]) not in finished:
            newest[step] = max(newest.get(step, ""), info.key)
    return sorted(newest.values())


def show(store: Store, what: str) -> int:
    """Print one step's record for people."""
    record = find_record(store, what)
    print(f"{record.display}\n  identity    {record.identity}\n  version     {record.version}")
    print(f"  generation  {record.generation}\n  lies in     {store.url_of(record.path)}")
    for name, value in record.provenance.items():
        shown = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value)) if name in ("started", "finished") else value
        print(f"  {name:<11} {shown}")
    print(f"  code        {record.code_digest}\n  output      {record.output_digest}")
    for dependency in record.dependencies:
        print(f"  upstream    {dependency.path}: {dependency.name}-{layout.short(dependency.identity)}")
    for flow in record.flows:
        dropped = ", ".join(
            f"{reason} {count}" for reason, count in sorted(flow.dropped.items(), key=lambda one: -one[1])
        )
        print(f"  {flow.unit:<11} read {flow.read}, kept {flow.kept}{f', dropped: {dropped}' if dropped else ''}")
    print("  config")
    print(_indented(json.dumps(record.recipe["config"], indent=2, ensure_ascii=False), 4))
    print("  result")
    print(_indented(json.dumps(record.result, indent=2, ensure_ascii=False), 4))
    print(f"  files ({len(record.files)}, {number(record.size)}B)")
    for file in record.files:
        print(f"    {file.size:>12}  {file.name}")
    return 0


def _indented(text: str, spaces: int) -> str:
    return "\n".join(" " * spaces + line for line in text.splitlines())


def list_things(store: Store, what: str | None) -> int:
    """Print the steps of a prefix, the files of a step, or the objects of a folder."""
    if what is None:
        done = list(records(store))
        for record in done:
            print(f"{number(record.size):>10}B  {record.display:<48} {record.path}")
        if not done:
            print(f"no finished step in {store.url}")
        return 0
    folder = what.strip("/")
    found = store.list(folder) if folder else []
    if found:
        for info in found:
            print(f"{info.size:>12}  {info.key}")
        return 0
    record = find_record(store, what)
    for file in record.files:
        print(f"{file.size:>12}  {file.name}")
    return 0


def cat(store: Store, what: str, file: str | None, limit: int) -> int:
    """Print a file of a step, or an object by its key."""
    name = file or what.strip("/")
    try:
        with open_thing(store, what, file) as source:
            if name.endswith(".parquet"):
                _print_parquet(source, name, limit)
                return 0
            while chunk := source.read(1 << 20):
                sys.stdout.buffer.write(chunk)
    except MissingObject as error:
        raise StepError(f"{error}; list what is there with `marin ls`, or name a step and a FILE of it") from error
    sys.stdout.buffer.flush()
    return 0


def open_thing(store: Store, what: str, file: str | None) -> BinaryIO:
    """A stream over a step's file, which must be as its record says, or over an object of the prefix."""
    if file is None:
        return store.open(what.strip("/"))
    artifact = Artifact()
    bind(artifact, store, find_record(store, what))
    return artifact.open(file)


def _print_parquet(source: BinaryIO, name: str, limit: int) -> None:
    import pyarrow
    import pyarrow.parquet as parquet

    left = limit
    try:
        for batch in parquet.ParquetFile(source).iter_batches(batch_size=min(256, max(1, limit))):
            for row in batch.to_pylist()[:left]:
                print(json.dumps(row, ensure_ascii=False, default=str))
            left -= min(left, batch.num_rows)
            if not left:
                return
    except pyarrow.ArrowException as error:
        raise StepError(f"{name} is no whole parquet file: {str(error).splitlines()[0]}") from error
