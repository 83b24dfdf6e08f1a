"""Joining documents with their attributes, deciding for all of them, and summing up what became of them.

Imports pyarrow; import this module inside step bodies only.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from marin.data.consolidation.config import Policy
from marin.data.consolidation.decide import Facts, Fates, decide
from marin.data.consolidation.predicates import PREDICATES, explain
from marin.data.consolidation.report import (
    SCORE_BINS,
    Cell,
    Listed,
    Summary,
    Upstream,
    data_card,
    policy_text,
    report_page,
)
from marin.data.consolidation.takedown import TakedownList, load_takedowns
from marin.data.consolidation.writing import Part, Written, bundles_of, write_bundle
from marin.data.documents.artifacts import Attributes, Documents, DocumentShard
from marin.data.documents.attributes import read_attributes
from marin.data.documents.io import documents_of, iterate_batches
from marin.data.documents.licences import licence_of
from marin.data.documents.split import split_of
from marin.data.evalsets.artifacts import EvalSet
from marin.execution import Artifact, StepError, current_run
from marin.execution.artifact import binding_of

logger = logging.getLogger(__name__)

_JUDGED_COLUMNS = ("id", "reason", "reasons", "language", "characters")


@dataclass(frozen=True)
class Inputs:
    """What is joined: the documents of every source with their signals, and the verdicts on all of them."""

    pages: Sequence[Documents]
    signals: Sequence[Attributes]
    duplicates: Attributes
    contamination: Attributes
    cells: Attributes

    def shards(self) -> Iterator[tuple[Documents, Attributes, DocumentShard]]:
        """Every shard with its artifact and signals, in the order in which documents are numbered."""
        for documents, attributes in zip(self.pages, self.signals, strict=True):
            for shard in documents.shards:
                yield documents, attributes, shard


def consolidate_documents(inputs: Inputs, evalset: EvalSet, policy: Policy) -> Documents:
    """Decide for all documents, then write those that stay; the body of the step."""
    if len(inputs.pages) != len(inputs.signals):
        raise StepError(
            f"consolidate got {len(inputs.pages)} documents and {len(inputs.signals)} signals; give the signals of "
            "each, in order"
        )
    run = current_run()
    takedowns = load_takedowns(policy.takedown)
    facts = Facts()
    for documents, attributes, shard in inputs.shards():
        _collect(facts, inputs, documents, attributes, shard, takedowns, policy)
    for entry in takedowns.entries:
        if not takedowns.met[entry.what]:
            logger.warning("no document is %s, which the takedown list names", entry.what)
    fates = decide(facts, policy)
    dropped = fates.dropped()
    if sum(dropped.values()) == len(facts.ids):
        raise StepError(_nothing_left(len(facts.ids), dropped))
    parts = _parts(inputs, facts, fates, evalset.validation_share, policy)
    written = run.map(write_bundle, bundles_of(parts, policy))
    result = documents_of(
        inputs.pages[0].source if len(inputs.pages) == 1 else None,
        sorted(
            (shard for bundle in written for shard in bundle.shards),
            key=lambda shard: (shard.split, shard.source, shard.topic, shard.quality, shard.name),
        ),
    )
    summary = _summary(inputs, facts, fates, result, written, takedowns, evalset, policy)
    run.write_json("counts.json", summary.counts())
    run.write_bytes("report.html", report_page(summary).encode())
    run.write_bytes("README.md", data_card(summary).encode())
    return result


def _nothing_left(read: int, dropped: dict[str, int]) -> str:
    if not read:
        return "consolidate got no documents; look at what the crawl and the extraction dropped"
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(dropped.items(), key=lambda item: -item[1]))
    return f"no document is left of {read}: {reasons}; loosen the rules of the signals or of the policy"


def _collect(
    facts: Facts,
    inputs: Inputs,
    documents: Documents,
    signals: Attributes,
    shard: DocumentShard,
    takedowns: TakedownList,
    policy: Policy,
) -> None:
    judged_again = policy.rules is not None or policy.language is not None
    columns = None if judged_again else _JUDGED_COLUMNS
    rows = read_attributes(signals, documents, shard, columns=columns)
    if judged_again:
        rows = rows.drop_columns(["bands", "content"])
    copies = read_attributes(inputs.duplicates, documents, shard, columns=("reason", "duplicate_of"))
    overlaps = read_attributes(inputs.contamination, documents, shard, columns=("reason",))
    grades = read_attributes(inputs.cells, documents, shard, columns=("score", "quality", "topic"))
    facts.scores.extend(grades.column("score").to_pylist())
    facts.buckets.extend(grades.column("quality").to_pylist())
    facts.topics.extend(grades.column("topic").to_pylist())
    ids: list[str] = rows.column("id").to_pylist()
    facts.ids.extend(ids)
    facts.sources.extend([shard.source] * shard.rows)
    facts.signals.extend(rows.to_pylist())
    facts.duplicate_reasons.extend(copies.column("reason").to_pylist())
    facts.duplicate_of.extend(copies.column("duplicate_of").to_pylist())
    facts.contaminated.extend(reason is not None for reason in overlaps.column("reason").to_pylist())
    if not policy.licence.is_open:
        default = policy.licence.default_of(shard.source)
        facts.licences.extend(licence_of(text or "", default) for text in _column(documents, shard, "metadata"))
    urls = _column(documents, shard, "url") if takedowns.needs_urls else [None] * shard.rows
    for document_id, url in zip(ids, urls, strict=True):
        entry = takedowns.find(document_id, url)
        facts.takedowns.append(None if entry is None else entry.reason)


def _column(documents: Documents, shard: DocumentShard, name: str) -> list[str | None]:
    """One text column of a shard."""
    return [
        value
        for batch in iterate_batches(documents, shard, columns=(name,))
        for value in batch.column(name).to_pylist()
    ]


def _parts(inputs: Inputs, facts: Facts, fates: Fates, validation_share: float, policy: Policy) -> list[Part]:
    samples = _choose_samples(facts.ids, fates, policy.samples)
    parts: list[Part] = []
    start = 0
    for documents, signals, shard in inputs.shards():
        rows = range(start, start + shard.rows)
        labels = {at - start: samples[at] for at in rows if at in samples}
        whys = tuple(_why(facts, fates, at) for at in rows)
        parts.append(
            Part(
                pages=documents,
                shard=shard,
                reasons=tuple(fates.reasons[at] for at in rows),
                whys=whys,
                splits=tuple(split_of(facts.ids[at], validation_share) for at in rows),
                buckets=tuple(facts.buckets[at] for at in rows),
                topics=tuple(facts.topics[at] for at in rows),
                languages=tuple(facts.signals[at]["language"] for at in rows),
                samples=_explained(labels, whys, documents, signals, shard, policy),
            )
        )
        start += shard.rows
    return parts


def _why(facts: Facts, fates: Fates, at: int) -> str | None:
    """What there is to say of a document beyond its reason."""
    reason = fates.reasons[at]
    if reason == "licence_other":
        return facts.licences[at]
    if reason == "takedown":
        original = facts.duplicate_of[at]
        return facts.takedowns[at] or f"a copy among those of {original or facts.ids[at]}"
    return facts.duplicate_of[at] if reason is not None and reason.startswith("duplicate") else None


def _choose_samples(ids: Sequence[str], fates: Fates, count: int) -> dict[int, str]:
    """Position and label of the documents that the report shows: those with the least hash of their id."""
    by_label: dict[str, list[tuple[bytes, int]]] = defaultdict(list)
    for at, reason in enumerate(fates.reasons):
        by_label[reason or "kept"].append((hashlib.blake2b(ids[at].encode(), digest_size=8).digest(), at))
    return {
        at: label
        for label, members in by_label.items()
        for _, at in sorted(members)[: 4 * count if label == "kept" else count]
    }


def _explained(
    labels: dict[int, str],
    whys: Sequence[str | None],
    documents: Documents,
    signals: Attributes,
    shard: DocumentShard,
    policy: Policy,
) -> dict[int, tuple[str, str]]:
    """Rows to show with their label, and the value that decided it."""
    columns = sorted({PREDICATES[label].column for label in labels.values() if label in PREDICATES})
    table = read_attributes(signals, documents, shard, columns=columns) if columns else None
    shown: dict[int, tuple[str, str]] = {}
    for row, label in labels.items():
        values = {} if table is None else {name: table.column(name)[row].as_py() for name in columns}
        shown[row] = label, whys[row] or explain(label, values, policy.rules, policy.language)
    return shown


def _summary(
    inputs: Inputs,
    facts: Facts,
    fates: Fates,
    result: Documents,
    written: Sequence[Written],
    takedowns: TakedownList,
    evalset: EvalSet,
    policy: Policy,
) -> Summary:
    by_source: dict[str, Counter[str]] = defaultdict(Counter)
    by_language: dict[str, Counter[str]] = defaultdict(Counter)
    lengths: dict[str, Counter[int]] = {"kept": Counter(), "dropped": Counter()}
    scores: dict[str, Counter[int]] = {"kept": Counter(), "dropped": Counter()}
    by_licence: dict[str, Counter[str]] = defaultdict(Counter)
    for fate, licence, count in (one for bundle in written for one in bundle.licences):
        by_licence[licence][fate] += count
    for source, row, score, reason in zip(facts.sources, facts.signals, facts.scores, fates.reasons, strict=True):
        fate = "dropped" if reason else "kept"
        by_source[source][fate] += 1
        by_language[row["language"]][fate] += 1
        lengths[fate][int(row["characters"]).bit_length()] += 1
        scores[fate][min(SCORE_BINS - 1, int(score * SCORE_BINS))] += 1
    cells: dict[tuple[str, str, int, int], list[int]] = defaultdict(lambda: [0, 0])
    for shard in result.shards:
        cell = cells[shard.split, shard.source, shard.topic, shard.quality]
        cell[0] += shard.rows
        cell[1] += shard.text_bytes
    return Summary(
        title=policy.title,
        read=len(facts.ids),
        kept=result.rows,
        text_bytes=result.text_bytes,
        dropped=fates.dropped(),
        by_source={name: dict(counts) for name, counts in sorted(by_source.items())},
        by_language={name: dict(counts) for name, counts in sorted(by_language.items())},
        by_licence={name: dict(counts) for name, counts in sorted(by_licence.items())},
        lengths={fate: dict(sorted(counts.items())) for fate, counts in lengths.items()},
        scores={fate: dict(sorted(counts.items())) for fate, counts in scores.items()},
        cells=tuple(Cell(*key, *sizes) for key, sizes in sorted(cells.items())),
        samples=tuple(
            sorted((one for bundle in written for one in bundle.samples), key=lambda one: (one.label, one.id))
        ),
        takedowns=tuple(Listed(entry.what, entry.reason, takedowns.met[entry.what]) for entry in takedowns.entries),
        emails=sum(bundle.emails for bundle in written),
        ips=sum(bundle.ips for bundle in written),
        validation_share=evalset.validation_share,
        upstream=tuple(_upstream(inputs, evalset)),
        policy=policy_text(policy),
    )


def _upstream(inputs: Inputs, evalset: EvalSet) -> Iterator[Upstream]:
    """What the documents were made from: the steps before this one, and those that the pages were made from."""
    named: list[tuple[str, Artifact]] = [
        *(("pages", documents) for documents in inputs.pages),
        *(("signals", attributes) for attributes in inputs.signals),
        ("duplicates", inputs.duplicates),
        ("overlap", inputs.contamination),
        ("evaluation set", evalset),
        ("cells", inputs.cells),
    ]
    for role, artifact in named:
        binding = binding_of(artifact)
        if binding is None:
            continue
        record = binding.record
        yield Upstream(role, record.display, record.version, record.identity)
        if role == "pages":
            for dependency in record.dependencies:
                step = f"{dependency.name}-{dependency.identity[:10]}"
                yield Upstream(f"{dependency.path} of these pages", step, "", dependency.identity)
