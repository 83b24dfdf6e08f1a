"""The steps that find duplicates, and overlap with evaluation items."""

from __future__ import annotations

from collections.abc import Sequence

from marin.data.dedup.config import DecontaminationConfig, DedupConfig
from marin.data.documents.artifacts import Attributes, Documents
from marin.data.evalsets.artifacts import EvalSet
from marin.execution import step


@step("documents/duplicates", version="1")
def deduplicate(
    pages: Sequence[Documents], signals: Sequence[Attributes], config: DedupConfig = DedupConfig()
) -> Attributes:
    """Exact and near duplicates across all sources.

    Every document takes part, those that the filters drop included, so that the policy can change without finding
    duplicates again; but a document that passes never gives way to one that does not. ``removed.jsonl`` maps every
    removed id to the id that stays, ``report.json`` has the counts.

    Args:
        pages: the sources.
        signals: the signals of each, in the same order.
        config: what counts as a copy, and which one stays.
    """
    from marin.data.dedup.duplicates import deduplicate_documents

    return deduplicate_documents(pages, signals, config)


@step("documents/overlap", version="2", fans_out=True)
def decontaminate(
    pages: Sequence[Documents],
    evalsets: Sequence[EvalSet],
    config: DecontaminationConfig = DecontaminationConfig(),
) -> Attributes:
    """Training documents that share long n-grams with items of evaluation sets.

    Documents that an evaluation set holds out are not judged, because they never train. ``report.json`` says for each
    set which items were found and where.
    """
    from marin.data.dedup.overlap import decontaminate_documents

    return decontaminate_documents(pages, evalsets, config)
