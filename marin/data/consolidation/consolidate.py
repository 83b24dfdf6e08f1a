"""Joining documents with their attributes, deciding for all of them, and summing up what became of them.

It takes four turns over the cluster: shards are judged, each for itself (`judging`); copies take the place of
documents that stood in for them and do not pass (`heirs`); repeated passages whose place is not kept are given another
(`holders`); and what stays is written (`writing`). No process holds
anything for every document but the numbers of those copies and passages.

Imports pyarrow and numpy; import this module inside step bodies only.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from marin.data.consolidation.bundles import Bundle, Part, bundled
from marin.data.consolidation.config import Policy
from marin.data.consolidation.counts import Tally
from marin.data.consolidation.cutting import DROPPED, OTHER_SPLIT
from marin.data.consolidation.decide import in_drop_order
from marin.data.consolidation.heirs import HeirTask, find_heirs, merge_heirs, pack_numbers
from marin.data.consolidation.holders import find_left
from marin.data.consolidation.judging import Judged, judge_shards, merge_gone, tasks_of
from marin.data.consolidation.places import Inputs, places_of
from marin.data.consolidation.report import (
    Cell,
    CutCount,
    LeftCount,
    Listed,
    PersonalCount,
    Summary,
    Upstream,
    data_card,
    policy_text,
    report_page,
)
from marin.data.consolidation.samples import choose_samples
from marin.data.consolidation.takedown import TakedownList, load_takedowns
from marin.data.consolidation.verdicts import pack
from marin.data.consolidation.writing import Written, write_bundle
from marin.data.documents.artifacts import Attributes, Documents
from marin.data.documents.io import documents_of
from marin.data.evalsets.artifacts import EvalSet
from marin.data.filtering.personal import PERSONAL_KINDS
from marin.execution import Artifact, Intermediate, StepError, current_run
from marin.execution.artifact import binding_of

logger = logging.getLogger(__name__)

_UNMET_SHOWN = 3


def consolidate_documents(inputs: Inputs, evalset: EvalSet, policy: Policy) -> Documents:
    """Decide for all documents, and write those that stay; the body of the step."""
    run = current_run()
    takedowns = load_takedowns(policy.takedown)
    tasks = list(tasks_of(places_of(inputs), policy, takedowns))
    judged = run.map(judge_shards, tasks, unit="judged")
    met = sum((Counter(one.met) for one in judged), Counter[str]())
    _tell_of_unmet(takedowns, met)
    parts = [
        Part(place, verdicts)
        for task, one in zip(tasks, judged, strict=True)
        for place, verdicts in zip(task.places, one.verdicts, strict=True)
    ]
    bundles = list(_bundles(parts, judged, evalset.validation_share, policy))
    if policy.cut_repeated and any(map(_tell_where, inputs.cuts)):
        bundles = list(_with_left(bundles, find_left(bundles)))
    written = run.map(write_bundle, bundles)
    tally = Tally(count for bundle in written for count in bundle.counts)
    result = documents_of(
        inputs.pages[0].source if len(inputs.pages) == 1 else None,
        sorted(
            (shard for bundle in written for shard in bundle.shards),
            key=lambda shard: (shard.split, shard.source, shard.topic, shard.quality, shard.name),
        ),
    )
    if not result.rows:
        raise StepError(_nothing_left(tally))
    summary = _summary(inputs, result, written, tally, takedowns, met, evalset, policy)
    run.write_json("counts.json", summary.counts())
    run.write_bytes("report.html", report_page(summary).encode())
    run.write_bytes("README.md", data_card(summary).encode())
    return result


def _tell_of_unmet(takedowns: TakedownList, met: Counter[str]) -> None:
    """Say which entries name nothing: a mistyped address would leave the document in."""
    named = [entry.what for entry in takedowns.entries]
    unmet = [what for what in dict.fromkeys(named) if not met[what]]
    for what in unmet:
        logger.warning("no document is %s, which the takedown list names", what)
    if unmet:
        more = ", …" if len(unmet) > _UNMET_SHOWN else ""
        current_run().remark(
            f"{len(unmet)} of {len(set(named))} takedown entries match no document: "
            f"{', '.join(unmet[:_UNMET_SHOWN])}{more}"
        )


def _nothing_left(tally: Tally) -> str:
    dropped = _dropped(tally)
    if not dropped:
        return "consolidate got no documents; look at what the crawl and the extraction dropped"
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(dropped.items(), key=lambda item: -item[1]))
    return (
        f"no document is left of {sum(dropped.values())}: {reasons}; loosen the rules of the signals or of the policy"
    )


def _bundles(
    parts: Sequence[Part], judged: Sequence[Judged], validation_share: float, policy: Policy
) -> Iterator[Bundle]:
    heirs = _heirs(judged)
    gone = merge_gone(judged)
    cells = {cell for one in judged for cell in one.cells}
    for number, (source, chosen) in enumerate(bundled(parts, len(cells))):
        yield Bundle(number, source, chosen, _heirs_of(chosen, heirs, number), gone, validation_share, policy)


def _heirs(judged: Sequence[Judged]) -> NDArray[np.int64]:
    """The numbers of the documents that take a dropped one's place."""
    if not (sum(one.lost for one in judged) and sum(one.waiting for one in judged)):
        return np.zeros(0, np.int64)
    partitions = [
        tuple(file for file in files if file is not None) for files in zip(*(one.copies for one in judged), strict=True)
    ]
    tasks = [HeirTask(files) for files in partitions if files]
    # A turn over the cluster for a single task takes longer than the task.
    found = [find_heirs(tasks[0])] if len(tasks) == 1 else current_run().map(find_heirs, tasks, unit="parts")
    return merge_heirs(found)


def _heirs_of(parts: Sequence[Part], heirs: NDArray[np.int64], number: int) -> Intermediate | None:
    """The heirs among the documents of some shards."""
    own = np.concatenate([heirs[slice(*_range(heirs, part))] for part in parts])
    if not len(own):
        return None
    return current_run().store_intermediate(f"heirs/{number:05d}.npy", pack_numbers(np.sort(own)))


def _tell_where(cut: Attributes) -> bool:
    """Whether passages tell where their text stays."""
    if not cut.shards:
        return False
    with cut.open(cut.shards[0].name) as stream:
        return "originals" in pq.read_schema(stream).names


def _with_left(bundles: Sequence[Bundle], left: pa.Table) -> Iterator[Bundle]:
    """The bundles, each with its passages that stay in their places."""
    run = current_run()
    numbers = left.column("number").combine_chunks().to_numpy()
    for bundle in bundles:
        ranges = [_range(numbers, part) for part in bundle.parts]
        own = pa.concat_tables([left.slice(low, high - low) for low, high in sorted(ranges)])
        file = run.store_intermediate(f"left/{bundle.number:05d}.arrow", pack(own)) if own.num_rows else None
        yield replace(bundle, left=file)


def _range(numbers: NDArray[np.int64], part: Part) -> tuple[int, int]:
    """Where the documents of a shard begin and end among numbers in order."""
    start = part.place.start
    low, high = np.searchsorted(numbers, [start, start + part.place.shard.rows])
    return int(low), int(high)


def _dropped(tally: Tally) -> dict[str, int]:
    return in_drop_order({reason: row["documents"] for reason, row in tally.figure("dropped").items()})


def _summary(
    inputs: Inputs,
    result: Documents,
    written: Sequence[Written],
    tally: Tally,
    takedowns: TakedownList,
    met: Counter[str],
    evalset: EvalSet,
    policy: Policy,
) -> Summary:
    cells: dict[tuple[str, str, int, int], list[int]] = defaultdict(lambda: [0, 0])
    for shard in result.shards:
        cell = cells[shard.split, shard.source, shard.topic, shard.quality]
        cell[0] += shard.rows
        cell[1] += shard.text_bytes
    dropped = _dropped(tally)
    personal = tally.figure("personal")
    cut, left = tally.figure("cut"), tally.figure("left")
    kinds = ("", *(one.kind for one in inputs.cuts)) if inputs.cuts and policy.cut_repeated else ()
    return Summary(
        title=policy.title,
        read=result.rows + sum(dropped.values()),
        kept=result.rows,
        text_bytes=result.text_bytes,
        dropped=dropped,
        by_source=tally.figure("source"),
        by_language=tally.figure("language"),
        by_licence=tally.figure("licence"),
        lengths=_bins(tally, "length"),
        scores=_bins(tally, "score"),
        cells=tuple(Cell(*key, *sizes) for key, sizes in sorted(cells.items())),
        samples=choose_samples([bundle.samples for bundle in written], policy),
        takedowns=tuple(Listed(entry.what, entry.reason, met[entry.what]) for entry in takedowns.entries),
        personal=tuple(
            PersonalCount(kind, policy.personal.of(kind), sum(personal.get(kind, {}).values()))
            for kind in PERSONAL_KINDS
        ),
        cuts=tuple(
            CutCount(kind or "all", cut.get(kind, {}).get("documents", 0), cut.get(kind, {}).get("characters", 0))
            for kind in kinds
        ),
        left=tuple(
            LeftCount(holder, *(left.get(holder, {}).get(name, 0) for name in ("documents", "passages", "characters")))
            for holder in ((DROPPED, OTHER_SPLIT) if kinds else ())
        ),
        validation_share=evalset.validation_share,
        upstream=tuple(_upstream(inputs, evalset)),
        policy=policy_text(policy),
    )


def _bins(tally: Tally, figure: str) -> dict[str, dict[int, int]]:
    """Documents by fate and bin, both in order."""
    found: dict[str, dict[int, int]] = {"kept": {}, "dropped": {}}
    for place, fates in sorted(tally.figure(figure).items(), key=lambda item: int(item[0])):
        for fate, count in fates.items():
            found[fate][int(place)] = count
    return found


def _upstream(inputs: Inputs, evalset: EvalSet) -> Iterator[Upstream]:
    """What the documents were made from: the steps before this one, and those that the pages were made from."""
    named: list[tuple[str, Artifact]] = [
        *(("pages", documents) for documents in inputs.pages),
        *(("signals", attributes) for attributes in inputs.signals),
        ("duplicates", inputs.duplicates),
        ("overlap", inputs.contamination),
        ("evaluation set", evalset),
        ("cells", inputs.cells),
        *((cut.kind, cut) for cut in inputs.cuts),
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
