"""Overlap with evaluation items over all shards; the body of the step.

Nothing of the corpus lies in this process but one small record for each shard: hits, counts and figures go through
files, those of counts by ranges of n-gram hashes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from marin.data.dedup.config import DecontaminationConfig
from marin.data.dedup.overlap.index import Item, index_items, items_of
from marin.data.dedup.overlap.judge import KIND, JudgeTask, judge_shard
from marin.data.dedup.overlap.report import OverlapReport
from marin.data.dedup.overlap.scan import CountTask, ScanTask, count_texts, scan_shard, spread
from marin.data.documents.artifacts import Attributes, Documents
from marin.data.documents.attributes import attributes_of
from marin.data.evalsets.artifacts import ITEMS_FILE, EvalSet
from marin.execution import StepError, current_run

_SHARDS_PER_PART = 64
_MOST_PARTS = 64


def decontaminate_documents(
    pages: Sequence[Documents], evalsets: Sequence[EvalSet], config: DecontaminationConfig
) -> Attributes:
    """Compare every training document with every item."""
    run = current_run()
    twice = [name for name, count in Counter(evalset.name for evalset in evalsets).items() if count > 1]
    if twice:
        raise StepError(f"two evaluation sets are called {twice[0]!r}; give each a name of its own (evalfiles.N.name)")
    places = [(documents, shard) for documents in pages for shard in documents.shards]
    grams, owners = index_items([evalset.name for evalset in evalsets], _items(evalsets), config)
    grams_file = run.store_intermediate("grams.npz", grams.to_bytes())
    owners_file = run.store_intermediate("owners.npz", owners.to_bytes())
    share = max((evalset.validation_share for evalset in evalsets), default=0.0)
    parts = min(_MOST_PARTS, 1 + len(places) // _SHARDS_PER_PART)
    scans = run.map(scan_shard, [ScanTask(documents, shard, grams_file, share, parts) for documents, shard in places])
    training = sum(scan.training for scan in scans)
    limit = max(config.common_documents, int(config.common_share * training))
    counted = run.map(count_texts, [CountTask(files, limit) for files in spread(scans, parts) if files], unit="parts")
    common = tuple(file for file in counted if file is not None)
    tasks = [
        JudgeTask(documents, shard, scan.hits, common, owners_file, config)
        for (documents, shard), scan in zip(places, scans, strict=True)
    ]
    report = OverlapReport(owners)
    for file in common:
        report.add_common(file)
    judgements = run.map(judge_shard, tasks)
    for judgement in judgements:
        if judgement.found is not None:
            report.add_shard(judgement.found)
    report.write(training, sum(judgement.contaminated for judgement in judgements), limit)
    return attributes_of(KIND, (judgement.attributes for judgement in judgements))


def _items(evalsets: Sequence[EvalSet]) -> Iterator[Item]:
    for number, evalset in enumerate(evalsets):
        yield from items_of(evalset.lines(ITEMS_FILE), number)
