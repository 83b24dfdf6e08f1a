"""Two tokenizers, compared by the bits per byte of a small model that is trained with each at equal FLOPs.

    python experiments/compare_tokenizers.py --scale smoke                         # to see it work
    python experiments/compare_tokenizers.py --scale laptop --comparison.seeds 3   # with an error bar

The documents are those of experiments/exp_535b.py, and are made once for both.
"""

from marin.checkpoint.artifacts import Checkpoint
from marin.cli.experiment import experiment_main
from marin.evaluation.artifacts import EvalReport
from marin.evaluation.comparison import Comparison
from marin.evaluation.steps import compare_tokenizers, evaluate
from marin.recipes import Scale
from marin.recipes.contenders import comparison_of, contenders_of, whole_texts
from marin.recipes.corpus import build_corpus
from marin.tokens.mixture.artifacts import Mixture
from marin.tokens.mixture.steps import build_mixture
from marin.tokens.shards.config import Selection
from marin.tokens.shards.steps import tokenize
from marin.tokens.tokenizer.artifacts import Tokenizer
from marin.training.steps import pretrain


def build(scale: Scale) -> Comparison:
    """The graph; runs nothing."""
    corpus = build_corpus(scale)
    clean = corpus.clean
    contenders = contenders_of(scale)
    tokenizers: dict[str, Tokenizer] = {}
    mixtures: dict[str, Mixture] = {}
    models: dict[str, tuple[Checkpoint, ...]] = {}
    reports: dict[str, tuple[EvalReport, ...]] = {}
    for one in contenders:
        tokenizer = one.make_tokenizer(clean).label(one.name)
        cells = {
            cell.name: tokenize(corpus.clean, tokenizer, cell.selection, scale.tokenize).label(
                f"{one.name}-{cell.name}"
            )
            for cell in scale.cells
        }
        heldout = {
            source: tokenize(clean, tokenizer, Selection("validation", source), scale.tokenize).label(
                f"{one.name}-heldout-{source}"
            )
            for source in scale.sources
        }
        mixture = build_mixture(cells, one.mixture).label(one.name)
        trained = tuple(
            pretrain(mixture, heldout, tokenizer, one.model, training).label(f"{one.name}-{seed}").on(scale.fleet)
            for seed, training in enumerate(one.trainings)
        )
        reports[one.name] = tuple(
            evaluate(model, tokenizer, corpus.evalset, heldout, corpus.overlap, whole_texts(scale.evaluation))
            .label(f"{one.name}-{seed}")
            .on(scale.fleet.single)
            for seed, model in enumerate(trained)
        )
        tokenizers[one.name], mixtures[one.name], models[one.name] = tokenizer, mixture, trained
    return compare_tokenizers(reports, models, tokenizers, mixtures, comparison_of(scale, contenders))


if __name__ == "__main__":
    experiment_main(build, default="laptop")
