"""The 535B-A23B run: from a crawl to an evaluated mixture-of-experts language model.

    python experiments/exp_535b.py                          # on this machine, in minutes
    python experiments/exp_535b.py --scale hero --dry-run   # what the full run consists of

The graph is the same at every scale; sizes and thresholds are in marin/recipes.
"""

from marin.cli.experiment import experiment_main
from marin.data.cells.steps import grade, sample_corpus, train_quality, train_topics
from marin.data.consolidation.steps import consolidate
from marin.data.crawl.steps import extract_pages, fetch_crawl
from marin.data.dedup.steps import decontaminate, deduplicate, deduplicate_across, repeated_lines, repeated_spans
from marin.data.evalsets.steps import build_evalset, load_evalset
from marin.data.filtering.steps import annotate
from marin.data.sources.steps import read_source
from marin.evaluation.artifacts import EvalReport
from marin.evaluation.steps import evaluate, load_task
from marin.recipes import Scale
from marin.tokens.mixture.steps import build_mixture
from marin.tokens.shards.config import Selection
from marin.tokens.shards.steps import tokenize
from marin.tokens.tokenizer.steps import train_tokenizer
from marin.training.steps import pretrain


def build(scale: Scale) -> EvalReport:
    """The graph; runs nothing."""
    crawls = tuple(fetch_crawl(crawl).label(crawl.source) for crawl in scale.crawls)
    pages = (
        *(extract_pages(crawl, scale.extract).label(at.source) for crawl, at in zip(crawls, scale.crawls, strict=True)),
        *(read_source(text).label(text.source) for text in scale.texts),
    )
    signals = tuple(annotate(page, scale.signals).label(name) for page, name in zip(pages, scale.sources, strict=True))
    within = tuple(
        deduplicate(page, signal, scale.dedup.inside(name)).label(name)
        for page, signal, name in zip(pages, signals, scale.sources, strict=True)
    )
    unique = deduplicate_across(pages, signals, within, scale.dedup)
    evalset = build_evalset(pages, signals, unique, scale.evalset)
    public = tuple(load_evalset(files).label(files.name) for files in scale.evalfiles)
    further = tuple(load_task(task).label(task.name) for task in scale.evaluation.further)
    overlap = decontaminate(pages, (evalset, *public, *further), scale.decontamination)
    sample = sample_corpus(pages, signals, unique, evalset, scale.sample)
    topics = train_topics(sample, scale.topics)
    quality = train_quality(sample, topics, scale.quality)
    grades = grade(pages, signals, quality, topics)
    lines = repeated_lines(pages, scale.lines, unique, scale.dedup)
    spans = (repeated_spans(pages, unique, scale.spans, signals, scale.dedup),) if scale.spans else ()
    cuts = (lines, *spans)
    clean = consolidate(pages, signals, unique, overlap, evalset, grades, cuts, scale.policy)
    tokenizer = train_tokenizer(clean, scale.tokenizer)
    cells = {
        cell.name: tokenize(clean, tokenizer, cell.selection, scale.tokenize).label(cell.name) for cell in scale.cells
    }
    heldout = {
        source: tokenize(clean, tokenizer, Selection("validation", source), scale.tokenize).label(f"heldout-{source}")
        for source in scale.sources
    }
    mixture = build_mixture(cells, scale.mixture)
    model = pretrain(mixture, heldout, tokenizer, scale.model, scale.training).on(scale.fleet)
    return evaluate(model, tokenizer, evalset, heldout, overlap, scale.evaluation).on(scale.fleet.single)


if __name__ == "__main__":
    experiment_main(build, default="laptop")
