"""The steps that find duplicates, and overlap with evaluation items."""

from __future__ import annotations

from collections.abc import Sequence

from marin.data.dedup.config import DecontaminationConfig, DedupConfig
from marin.data.dedup.spans_config import LineConfig, SpanConfig
from marin.data.documents.artifacts import Attributes, Documents
from marin.data.evalsets.artifacts import EvalSet
from marin.execution import step


@step("documents/duplicates_within", version="1", fans_out=True)
def deduplicate(pages: Documents, signals: Attributes, config: DedupConfig = DedupConfig()) -> Attributes:
    """Exact and near duplicates within one source; `deduplicate_across` joins those of all sources.

    Every document takes part, those that the filters drop included, so that the policy can change without finding
    duplicates again; but a document that passes never gives way to one that does not.

    Args:
        pages: the source.
        signals: its signals.
        config: what counts as a copy, and which one stays; ``config.inside(source)`` leaves out what only says how
            sources stand to one another, so that another source does not change it.
    """
    from marin.data.dedup.duplicates import deduplicate_inside

    return deduplicate_inside(pages, signals, config)


@step("documents/duplicates", version="2", fans_out=True)
def deduplicate_across(
    pages: Sequence[Documents],
    signals: Sequence[Attributes],
    within: Sequence[Attributes],
    config: DedupConfig = DedupConfig(),
) -> Attributes:
    """Exact and near duplicates across all sources, and the final verdict on every document.

    What stays within its source is compared with the other sources. When it is dropped, the documents that it stood in
    for are compared again with those that stay. ``removed.jsonl`` maps every removed id to the id that stays,
    ``report.json`` has the counts.

    Args:
        pages: the sources.
        signals: the signals of each, in the same order.
        within: the duplicates within each, in the same order.
        config: what counts as a copy, and which one stays.
    """
    from marin.data.dedup.duplicates import deduplicate_over

    return deduplicate_over(pages, signals, within, config)


@step("documents/overlap", version="3", fans_out=True)
def decontaminate(
    pages: Sequence[Documents],
    evalsets: Sequence[EvalSet],
    config: DecontaminationConfig = DecontaminationConfig(),
) -> Attributes:
    """Training documents that share long n-grams with items of evaluation sets.

    Documents that an evaluation set holds out are not judged, because they never train. ``report.json`` and
    ``report.html`` have the figures of each set, ``items/<set>.parquet`` a row for each of its items.

    Args:
        pages: the sources.
        evalsets: the evaluation sets, each of a name of its own.
        config: what counts as overlap.
    """
    from marin.data.dedup.overlap.decontaminate import decontaminate_documents

    return decontaminate_documents(pages, evalsets, config)


@step("documents/lines", version="2", fans_out=True)
def repeated_lines(
    pages: Sequence[Documents],
    config: LineConfig = LineConfig(),
    duplicates: Attributes | None = None,
    dedup: DedupConfig = DedupConfig(),
) -> Attributes:
    """Spans of boilerplate: lines and paragraphs that recur on many pages of a site, or on many sites.

    ``report.json`` has the counts, by source too, and the lines on most documents.

    Args:
        pages: the sources.
        config: what is boilerplate.
        duplicates: duplicates among all sources; what they drop is not counted, so that text is not taken for
            boilerplate because there are copies of it. Spans are found in all documents.
        dedup: names the protected sources, whose lines are counted and never cut.
    """
    from marin.data.dedup.lines import repeated_lines_of

    return repeated_lines_of(pages, duplicates, config, dedup)


@step("documents/spans", version="2", fans_out=True)
def repeated_spans(
    pages: Sequence[Documents],
    duplicates: Attributes,
    config: SpanConfig = SpanConfig(),
    signals: Sequence[Attributes] = (),
    dedup: DedupConfig = DedupConfig(),
) -> Attributes:
    """Long spans of words that stand in a preferred place too, in the documents that are no duplicates.

    ``report.json`` has the counts, by source too, and samples of the spans that recur most.

    Args:
        pages: the sources.
        duplicates: duplicates among all sources; what they drop takes no part.
        config: how long a span must be.
        signals: the signals of each source, in the same order; documents that fail the filters take no part, so that
            nothing is cut for the sake of a text that is dropped. Without any, all documents take part.
        dedup: which source is preferred, and which are protected, as for whole documents. Of the places of a span the
            one in the preferred source stays, then the one in the document of the least id, then the first.
    """
    from marin.data.dedup.substrings import repeated_spans_of

    return repeated_spans_of(pages, duplicates, signals, config, dedup)
