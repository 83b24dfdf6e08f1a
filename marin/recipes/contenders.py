"""What each tokenizer of a comparison is trained and measured with: one model shape, one budget of FLOPs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from marin.data.documents.artifacts import Documents
from marin.evaluation.comparison import ComparisonConfig
from marin.evaluation.config import EvaluationConfig
from marin.execution import derive_seed
from marin.model.config import ModelConfig
from marin.recipes.scale import Scale
from marin.tokens.mixture.config import MixtureConfig
from marin.tokens.tokenizer.artifacts import Tokenizer
from marin.tokens.tokenizer.config import ImportConfig, TokenizerConfig
from marin.tokens.tokenizer.steps import import_tokenizer, train_tokenizer
from marin.training.budget import run_flops, with_flops
from marin.training.config import TrainingConfig

MOST_UNEQUAL = 0.05
"""Runs whose FLOPs are further from the budget than this are not compared."""


@dataclass(frozen=True)
class Contender:
    """A candidate with everything that follows from its vocabulary and the budget."""

    name: str
    tokenizer: TokenizerConfig | ImportConfig
    model: ModelConfig
    trainings: tuple[TrainingConfig, ...]
    """One for each seed."""
    mixture: MixtureConfig

    def make_tokenizer(self, clean: Documents) -> Tokenizer:
        """The tokenizer, trained on the documents or imported."""
        if isinstance(self.tokenizer, ImportConfig):
            return import_tokenizer(self.tokenizer)
        return train_tokenizer(clean, self.tokenizer)


def contenders_of(scale: Scale) -> tuple[Contender, ...]:
    """The candidates of a scale at equal FLOPs. Raises ValueError when there are fewer than two.

    The steps follow from the budget and the vocabulary; batch, schedule (in shares of the run) and all else of the
    model stay. The tokens over which a mixture counts epochs grow and shrink with the run.
    """
    candidates = scale.comparison.candidates
    if len(candidates) < 2:
        raise ValueError(f"comparison.candidates has {len(candidates)} tokenizers; give at least two to compare")
    contenders = []
    for candidate in candidates:
        tokenizer = candidate.tokenizer or scale.tokenizer
        if isinstance(tokenizer, TokenizerConfig):
            vocabulary = tokenizer.padded_size(tokenizer.vocab_size)
        else:
            assert candidate.vocab_size is not None
            vocabulary = candidate.vocab_size
        model = replace(scale.model, vocab_size=vocabulary)
        training = with_flops(model, scale.training, flops_of(scale))
        _refuse_unequal(candidate.name, run_flops(model, training), flops_of(scale))
        budget = scale.mixture.budget_tokens
        if budget is not None:
            budget = round(budget * training.sequences / scale.training.sequences)
        trainings = tuple(
            replace(training, seed=training.seed if seed == 0 else seed_of(training.seed, seed))
            for seed in range(scale.comparison.seeds)
        )
        contenders.append(
            Contender(candidate.name, tokenizer, model, trainings, replace(scale.mixture, budget_tokens=budget))
        )
    return tuple(contenders)


def _refuse_unequal(name: str, flops: float, budget: float) -> None:
    """Raise where whole steps cannot come near the budget, so that the runs would not be comparable."""
    if abs(flops / budget - 1) > MOST_UNEQUAL:
        raise ValueError(
            f"candidate {name!r} would train with {flops:.4g} FLOPs, {flops / budget - 1:+.1%} of the budget of "
            f"{budget:.4g}: whole steps come no nearer; raise comparison.flops or lower training.batch_sequences"
        )


def flops_of(scale: Scale) -> float:
    """The budget of each training run of the comparison."""
    own = float(run_flops(scale.model, scale.training))
    return own if scale.comparison.flops is None else scale.comparison.flops


def seed_of(root: int, number: int) -> int:
    """The seed of a further model, small enough to read in a config file."""
    return derive_seed(root, f"comparison/{number}") % 2**31


def whole_texts(config: EvaluationConfig) -> EvaluationConfig:
    """The evaluation over all held-out text: a part counted in tokens would be another text for each tokenizer."""
    return replace(config, heldout_tokens=None)


def comparison_of(scale: Scale, contenders: tuple[Contender, ...]) -> ComparisonConfig:
    """What the comparison must know of runs beside their results."""
    return ComparisonConfig(
        baseline=contenders[0].name,
        flops=flops_of(scale),
        sequences={one.name: one.trainings[0].sequences for one in contenders},
    )
