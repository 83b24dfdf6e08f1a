"""The 535B-A23B run: from a crawl to an evaluated mixture-of-experts language model.

    python experiments/exp_535b.py                          # on this machine, in minutes
    python experiments/exp_535b.py --scale hero --dry-run   # what the full run consists of

The graph is the same at every scale; sizes and thresholds are in marin/recipes. Its first half, from the sources to
clean documents, is marin/recipes/corpus.py, which other experiments share.
"""

from marin.cli.experiment import experiment_main
from marin.evaluation.artifacts import EvalReport
from marin.evaluation.steps import evaluate
from marin.recipes import Scale
from marin.recipes.corpus import build_corpus
from marin.tokens.mixture.steps import build_mixture
from marin.tokens.shards.config import Selection
from marin.tokens.shards.steps import tokenize
from marin.tokens.tokenizer.steps import train_tokenizer
from marin.training.steps import pretrain


def build(scale: Scale) -> EvalReport:
    """The graph; runs nothing."""
    corpus = build_corpus(scale)
    clean = corpus.clean
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
    return evaluate(model, tokenizer, corpus.evalset, heldout, corpus.overlap, scale.evaluation).on(scale.fleet.single)


if __name__ == "__main__":
    experiment_main(build, default="laptop")
