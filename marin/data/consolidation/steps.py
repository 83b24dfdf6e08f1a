"""The step that joins documents with all that is known of them, once."""

from __future__ import annotations

from collections.abc import Sequence

from marin.data.consolidation.config import Policy
from marin.data.documents.artifacts import Attributes, Documents
from marin.data.evalsets.artifacts import EvalSet
from marin.execution import step


def consolidate(
    pages: Sequence[Documents],
    signals: Sequence[Attributes],
    duplicates: Attributes,
    contamination: Attributes,
    evalset: EvalSet,
    cells: Attributes,
    cuts: Sequence[Attributes] = (),
    config: Policy = Policy(),
) -> Documents:
    """`clean_documents` under a policy whose takedown lists are read now, so that a changed list is another recipe.

    Raises:
        StepError: a takedown list cannot be read, or one of its lines is no entry.
    """
    if config.takedown.files:
        from marin.data.consolidation.takedown import with_lists_of_now

        config = with_lists_of_now(config)
    return clean_documents(pages, signals, duplicates, contamination, evalset, cells, cuts, config)


@step("documents/clean", version="8", fans_out=True, cutoff=True)
def clean_documents(
    pages: Sequence[Documents],
    signals: Sequence[Attributes],
    duplicates: Attributes,
    contamination: Attributes,
    evalset: EvalSet,
    cells: Attributes,
    cuts: Sequence[Attributes] = (),
    config: Policy = Policy(),
) -> Documents:
    """Documents that the policy keeps, in shards of one split, source, topic and quality bucket each.

    ``report.html`` shows what was dropped and why, with samples; ``README.md`` is the data card; ``counts.json`` has
    the numbers; ``fates/`` says of every document that came in what became of it.

    Args:
        pages: the sources.
        signals: the signals of each, in the same order.
        duplicates: the duplicates among all sources.
        contamination: the overlap with evaluation items.
        evalset: the evaluation set from held-out documents; it says which share of documents is held out.
        cells: quality bucket and topic of all documents.
        cuts: passages that recur elsewhere, in kinds such as lines and spans; the policy says whether they are cut.
        config: the policy.
    """
    from marin.data.consolidation.consolidate import consolidate_documents
    from marin.data.consolidation.places import Inputs

    return consolidate_documents(Inputs(pages, signals, duplicates, contamination, cells, cuts), evalset, config)
