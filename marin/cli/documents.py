"""`marin documents find`: where a document came from, what was found about it, and where it went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from marin.execution import Record, StepError
from marin.storage import Store

if TYPE_CHECKING:
    from marin.data.consolidation.prefix_records import PrefixRecords
    from marin.data.consolidation.trace import Fate, Found, Verdict

_DOCUMENTS = "marin.data.documents.artifacts:Documents"
_CRAWL = "marin.data.crawl.artifacts:Crawl"
_TOKENS = "marin.tokens.shards.artifacts:TokenShards"
_MIXTURE = "marin.tokens.mixture.artifacts:Mixture"
_CHECKPOINT = "marin.checkpoint.artifacts:Checkpoint"
_DUPLICATES = "duplicates"
_UNTOLD = frozenset({"id", "reason", "reasons", "starts", "ends"})
_ACCOUNTS = frozenset({"extraction.json", "reading.json"})
_MOST_PASSAGES = 20
_LONGEST_PASSAGE = 100


def find(store: Store, what: str, everything: bool = False) -> int:
    """Print the history of every document of an id or URL.

    One that lies in several files, or was made by several runs, is told in full where it was made last; of the others
    only where they come from and went, unless everything is asked for.

    Raises:
        StepError: no step made such a document.
    """
    from marin.data.consolidation.prefix_records import PrefixRecords
    from marin.data.consolidation.trace import find_documents

    records = PrefixRecords(store)
    told: Counter[str] = Counter()
    everywhere = sorted(find_documents(records, what), key=lambda one: -one.record.provenance.get("finished", 0.0))
    for found in everywhere:
        document_id = found.columns["id"]
        if told:
            print()
        told[document_id] += 1
        is_full = everything or told[document_id] == 1
        for line in _history(records, found) if is_full else _again(records, found, told[document_id]):
            print(line)
    if len(told) < told.total() and not everything:
        print("\nof a document that was found again only its places are told: --all tells everything")
    for key in records.damaged:
        print(f"the record {key} is damaged and was passed over")
    if not told:
        raise StepError(f"no document of {store.url} is {what!r}{_where_dropped(records)}")
    return 0


def _where_dropped(records: PrefixRecords) -> str:
    """Where records are counted of which no document came, as far as the prefix has such steps."""
    told = {
        f"{name} of {record.name}"
        for record in records.of_type(_DOCUMENTS)
        for name in (file.name for file in record.files)
        if name in _ACCOUNTS
    }
    return f"; a record that gave no document is counted in {' and '.join(sorted(told))}" if told else ""


def _history(records: PrefixRecords, found: Found) -> Iterator[str]:
    from marin.data.consolidation.trace import fates, verdicts

    columns = found.columns
    yield f"document {columns['id']}"
    yield f"  source      {columns['source']}"
    yield f"  url         {columns['url'] or 'none'}"
    yield f"  text hash   {columns['text_hash']}"
    yield from _crawl(records, found)
    for name, value in found.metadata.items():
        yield f"  {name:<11} {_shown(value)}"
    yield from _maker(found)
    judged = list(verdicts(records, found))
    for verdict in judged:
        reasons = verdict.columns.get("reasons") or [reason for reason in [verdict.columns.get("reason")] if reason]
        yield f"  {verdict.kind:<11} {', '.join(reasons) or 'passes'} [{verdict.record.display}]"
        for name, value in verdict.columns.items():
            if name not in _UNTOLD and value not in (None, []):
                yield f"    {name:<34} {_shown(value)}"
        yield from _passages(found, verdict)
        if verdict.kind == _DUPLICATES:
            yield from _copies(records, found, verdict)
    for fate in fates(records, found, judged):
        yield from _fate(records, fate, columns["id"])


def _again(records: PrefixRecords, found: Found, time: int) -> Iterator[str]:
    """Where a document lies that was told before, and what became of it there."""
    from marin.data.consolidation.trace import fates, verdicts

    yield f"document {found.columns['id']}, place {time}"
    crawl = list(_crawl(records, found))
    yield from crawl
    if not crawl and "file" in found.metadata:
        yield f"  file        {found.metadata['file']}"
    yield from _maker(found)
    for fate in fates(records, found, list(verdicts(records, found))):
        yield from _fate(records, fate, found.columns["id"])


def _maker(found: Found) -> Iterator[str]:
    yield f"  made by     {found.record.display}, run {found.record.provenance.get('run', 'unknown')}"
    yield f"              {found.shard.name}, row {found.row}"


def _copies(records: PrefixRecords, found: Found, verdict: Verdict) -> Iterator[str]:
    """The document that stays in the place of a removed one, or what a kept one stands for."""
    from marin.data.consolidation.trace import copies

    told = copies(records, found, verdict)
    if told.survivor is not None:
        columns = told.survivor.columns
        yield f"    {'stays in its place':<34} {columns['id']} {columns['source']} {columns['url'] or 'without url'}"
    if told.removed:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in told.removed.items())
        yield f"    {'stays in the place of':<34} {sum(told.removed.values()):,} removed ({reasons})"


def _passages(found: Found, verdict: Verdict) -> Iterator[str]:
    """The passages of the document that are marked to be cut."""
    from marin.data.consolidation.trace import passages

    marked = list(passages(found, verdict))
    for begin, end, text in marked[:_MOST_PASSAGES]:
        plain = " ".join(text.split())
        shown = plain if len(plain) <= _LONGEST_PASSAGE else f"{plain[: _LONGEST_PASSAGE - 1]}…"
        yield f"    {f'characters {begin} to {end}':<34} {shown}"
    if len(marked) > _MOST_PASSAGES:
        yield f"    {'and':<34} {len(marked) - _MOST_PASSAGES} more"


def _crawl(records: PrefixRecords, found: Found) -> Iterator[str]:
    """The crawl, and the place in its files."""
    metadata = found.metadata
    for record in records.upstream_of(found.record):
        if record.result_type == _CRAWL:
            yield f"  crawl       {record.display}, run {record.provenance.get('run', 'unknown')}"
            keys = {file.name: file.key for file in record.files}
            for warc in record.result["warcs"]:
                if warc["name"] == metadata.get("warc"):
                    place = f", from byte {metadata['offset']}" if "offset" in metadata else ""
                    yield f"  lies in     {warc['url'] or records.store.url_of(keys[warc['name']])}{place}"


def _fate(records: PrefixRecords, fate: Fate, document_id: str) -> Iterator[str]:
    if fate.reason is not None:
        why = f": {fate.why}" if fate.why else ""
        yield f"  dropped     {fate.reason}{why} [{fate.record.display}]"
        return
    assert fate.shard is not None
    cut = "" if fate.cut_characters is None else f", {fate.cut_characters} characters cut"
    if fate.left_characters is not None:
        cut += f", {fate.left_characters} repeated ones left, since no other document of its split keeps them"
    yield f"  kept        {fate.shard.name}, row {fate.row}{cut} [{fate.record.display}]"
    seen: dict[str, Record] = {}
    for record, name, place in _token_shards(records, fate, document_id):
        yield f"  tokens      {name}.bin, document {place} [{record.display}]"
        for user in records.below(record):
            seen.setdefault(user.identity, user)
    for record in seen.values():
        if record.result_type == _MIXTURE:
            yield f"  mixture     {record.display}"
    for record in seen.values():
        if record.result_type == _CHECKPOINT:
            step = record.result.get("step", "unknown")
            yield f"  training    {record.display}, run {record.provenance.get('run', 'unknown')}, {step} steps"


def _token_shards(records: PrefixRecords, fate: Fate, document_id: str) -> Iterator[tuple[Record, str, int]]:
    """The token shards that hold a document, with its place in each."""
    from marin.data.documents.lookup import matching_rows
    from marin.tokens.shards.artifacts import TokenShards

    for record in records.users_of(fate.record):
        if record.result_type != _TOKENS:
            continue
        shards = records.artifact(record, TokenShards)
        selection = shards.selection
        chosen = fate.clean.select(
            split=selection.split, source=selection.source, quality=selection.quality, topic=selection.topic
        )
        if fate.shard not in chosen:
            continue
        for shard in shards.shards:
            name = f"{shard.name}.documents.parquet"
            for place in matching_rows(shards, name, "id", lambda value: value == document_id):
                yield record, shard.name, place


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
