"""Tokenizers compared by what a model needs to tell held-out text: bits per byte, at equal FLOPs. Imports no torch.

Losses of models with different vocabularies cannot be compared, since their tokens are not the same; bits per byte of
the same text can.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from marin.checkpoint.artifacts import Checkpoint
from marin.evaluation.artifacts import EvalReport
from marin.execution import Artifact, StepError
from marin.model.accounting import flops_per_token, total_parameters
from marin.model.config import ModelConfig
from marin.tokens.mixture.artifacts import Mixture
from marin.tokens.tokenizer.artifacts import Tokenizer

COMPARISON = "comparison.json"
COMPARISON_PAGE = "comparison.html"
ALL = "all"
"""The row over all sources together, each weighted by its bytes."""
STUDENT_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Two-sided 95% quantiles of Student's t for 1, 2, … degrees of freedom; the last stands for all above it too."""


@dataclass(frozen=True)
class ComparisonConfig:
    """What the runs had in common, and what is not in their results.

    Attributes:
        baseline: name of the tokenizer that the others are compared with.
        flops: the budget of every training run.
        sequences: sequences of a training run, by tokenizer.
    """

    baseline: str
    flops: float
    sequences: dict[str, int]


@dataclass(frozen=True)
class Contest:
    """What was trained with a tokenizer. `flops` are those of one run, by the model as it was trained.

    Attributes:
        vocab_size: entries of the model's vocabulary.
        real_vocab_size: entries that the tokenizer can emit.
        embedding_parameters: of the embedding and the output matrix together, which grow with the vocabulary.
        other_parameters: all the rest, the same for every tokenizer.
        steps: of one run.
        tokens: real tokens that one run was trained on (mean over seeds).
        text_bytes: bytes of text that these tokens stand for, by the bytes per token of each cell of the mixture.
    """

    name: str
    vocab_size: int
    real_vocab_size: int
    embedding_parameters: int
    other_parameters: int
    flops_per_token: int
    flops: int
    steps: int
    tokens: int
    text_bytes: int
    seeds: int


@dataclass(frozen=True)
class Score:
    """Bits per byte of one tokenizer on one source, over seeds; differences are from the baseline.

    Attributes:
        values: one for each seed.
        deviation: sample standard deviation over seeds; None of a single one.
        difference: mean minus the baseline's mean; negative is better.
        difference_error: standard error of the difference; None where either side has a single seed.
        bytes_per_token: of the held-out text.
    """

    name: str
    values: tuple[float, ...]
    mean: float
    deviation: float | None
    difference: float
    difference_error: float | None
    bytes_per_token: float


@dataclass(frozen=True)
class SourceComparison:
    """The scores on the same held-out text, the baseline's first."""

    source: str
    bytes: int
    scores: tuple[Score, ...]


@dataclass(frozen=True, kw_only=True)
class Comparison(Artifact):
    """Which tokenizer gives the better model for the same FLOPs. Files: comparison.json, comparison.html.

    Attributes:
        flops: the budget of every training run.
        contests: what was trained, the baseline first.
        sources: by held-out source; the last is all of them together.
        verdicts: which is better, by how much, and how sure that is, in sentences.
    """

    flops: float
    contests: tuple[Contest, ...]
    sources: tuple[SourceComparison, ...]
    verdicts: tuple[str, ...]

    def present(self, places: dict[str, str]) -> Any:
        """The tables that end a run's console."""
        from marin.evaluation.comparison_tables import render

        return render(self, {"page": self.url(COMPARISON_PAGE), "figures": self.url(COMPARISON), **places})


def embedding_parameters(model: ModelConfig) -> int:
    """Weights of the embedding and of the output matrix, one row for each entry of the vocabulary in both."""
    return 2 * model.vocab_size * model.width


def compare(
    reports: Mapping[str, Sequence[EvalReport]],
    models: Mapping[str, Sequence[Checkpoint]],
    tokenizers: Mapping[str, Tokenizer],
    mixtures: Mapping[str, Mixture],
    config: ComparisonConfig,
) -> Comparison:
    """The comparison of models that were trained with each tokenizer, by its name; seeds in the same order.

    Raises:
        StepError: the runs cannot be compared: other models but for the vocabulary, FLOPs that differ by more than
            one step, or other held-out text.
    """
    names = (config.baseline, *sorted(set(reports) - {config.baseline}))
    contests = tuple(
        _contest(name, models[name], tokenizers[name], mixtures[name], config.sequences[name]) for name in names
    )
    _check_flops(contests, config.flops)
    _check_models({name: models[name] for name in names})
    sizes = _same_text({name: reports[name] for name in names})
    sources = [_source(source, size, names, reports) for source, size in sizes.items()]
    everything = _everything(sum(sizes.values()), names, reports)
    return Comparison(
        flops=config.flops,
        contests=contests,
        sources=(*sources, everything),
        verdicts=tuple(_verdict(everything, score) for score in everything.scores[1:]),
    )


def text_bytes_per_token(mixture: Mixture) -> float:
    """Bytes of text behind a token of the run, the mean over its phases; a ramp counts half for each of its sides."""
    phases = mixture.phases
    after = (*(phase.ramp for phase in phases[1:]), 0.0)
    shares = [phase.share - (phase.ramp - ramp) / 2 for phase, ramp in zip(phases, after, strict=True)]
    return math.fsum(
        share * weight * mixture.components[cell].text_bytes / mixture.components[cell].tokens
        for share, phase in zip(shares, phases, strict=True)
        for cell, weight in phase.weights.items()
        if weight > 0
    )


def _contest(
    name: str, models: Sequence[Checkpoint], tokenizer: Tokenizer, mixture: Mixture, sequences: int
) -> Contest:
    model = models[0].model
    tokens = round(statistics.fmean(one.tokens for one in models))
    return Contest(
        name=name,
        vocab_size=model.vocab_size,
        real_vocab_size=tokenizer.real_vocab_size,
        embedding_parameters=embedding_parameters(model),
        other_parameters=total_parameters(model) - embedding_parameters(model),
        flops_per_token=flops_per_token(model),
        flops=flops_per_token(model) * model.sequence_length * sequences,
        steps=models[0].step,
        tokens=tokens,
        text_bytes=round(tokens * text_bytes_per_token(mixture)),
        seeds=len(models),
    )


def _check_flops(contests: Iterable[Contest], budget: float) -> None:
    for one in contests:
        if abs(one.flops - budget) > one.flops / one.steps:
            raise StepError(
                f"the models with the tokenizer {one.name!r} took {one.flops:.4g} FLOPs, more than a step from the "
                f"{budget:.4g} of the budget: its vocabulary came out as {one.vocab_size} entries, which is not what "
                "the steps were derived from; ask for that many (tokenizer.vocab_size of one that is trained, "
                "vocab_size of an import) and run it again"
            )


def _check_models(models: Mapping[str, Sequence[Checkpoint]]) -> None:
    """The same shape but for the vocabulary, and the same one for every seed."""
    shapes = {name: [replace(one.model, vocab_size=1) for one in trained] for name, trained in models.items()}
    first, *others = shapes
    for name in others:
        if any(shape != shapes[first][0] for shape in shapes[name]):
            raise StepError(f"the models of {name!r} and {first!r} differ in more than their vocabulary")
        if len(shapes[name]) != len(shapes[first]):
            raise StepError(
                f"{name!r} has {len(shapes[name])} models and {first!r} {len(shapes[first])}; train as many"
            )


def _same_text(reports: Mapping[str, Sequence[EvalReport]]) -> dict[str, int]:
    """Bytes by source, after a check that every model was measured on the whole of the same text."""
    first, *_ = reports
    expected = {row.source: row.bytes for row in reports[first][0].sources}
    if not expected:
        raise StepError("no source has held-out text: there is nothing to compare on")
    for name, measured in reports.items():
        for report in measured:
            for row in report.sources:
                if not row.complete:
                    raise StepError(
                        f"the model of {name!r} was measured on a first part of {row.source!r}, which is another text "
                        "for each tokenizer; set evaluation.heldout_tokens to null"
                    )
            found = {row.source: row.bytes for row in report.sources}
            if found != expected:
                raise StepError(f"{name!r} was measured on {found} bytes by source, but {first!r} on {expected}")
    return expected


def _source(
    source: str, size: int, names: Sequence[str], reports: Mapping[str, Sequence[EvalReport]]
) -> SourceComparison:
    rows = {name: [row for one in reports[name] for row in one.sources if row.source == source] for name in names}
    values = {name: tuple(row.bits_per_byte for row in rows[name]) for name in names}
    return _compared(source, size, values, {name: rows[name][0].bytes / rows[name][0].tokens for name in names})


def _everything(size: int, names: Sequence[str], reports: Mapping[str, Sequence[EvalReport]]) -> SourceComparison:
    values = {
        name: tuple(math.fsum(row.bits_per_byte * row.bytes for row in one.sources) / size for one in reports[name])
        for name in names
    }
    return _compared(
        ALL, size, values, {name: size / sum(row.tokens for row in reports[name][0].sources) for name in names}
    )


def _compared(
    source: str, size: int, values: Mapping[str, tuple[float, ...]], bytes_per_token: Mapping[str, float]
) -> SourceComparison:
    first, *_ = values.values()
    scores = []
    for name, own in values.items():
        baseline = own is first
        error = None
        if not baseline and len(own) > 1 and len(first) > 1:
            error = math.sqrt(statistics.variance(own) / len(own) + statistics.variance(first) / len(first))
        scores.append(
            Score(
                name=name,
                values=own,
                mean=statistics.fmean(own),
                deviation=statistics.stdev(own) if len(own) > 1 else None,
                difference=statistics.fmean(own) - statistics.fmean(first),
                difference_error=error,
                bytes_per_token=bytes_per_token[name],
            )
        )
    return SourceComparison(source, size, tuple(scores))


def errors_of_doubt(seeds: int) -> float:
    """Standard errors within which a difference of two means over `seeds` each is undecided (Student's t, 95%)."""
    freedom = 2 * (seeds - 1)
    return STUDENT_95[min(freedom, len(STUDENT_95)) - 1]


def _verdict(everything: SourceComparison, score: Score) -> str:
    """Which of two is better over all held-out text, by how much, and whether seeds alone could have done it."""
    baseline = everything.scores[0]
    if score.difference == 0:
        return f"{score.name} and {baseline.name} need the same bits per byte."
    better, worse = (score, baseline) if score.difference < 0 else (baseline, score)
    gap = worse.mean - better.mean
    told = (
        f"{better.name} is better than {worse.name}: {better.mean:.4f} against {worse.mean:.4f} bits per byte, "
        f"{gap:.4f} fewer ({gap / worse.mean:.2%})"
    )
    if score.difference_error is None:
        return f"{told}. One seed gives no error bar: another one could turn this round (comparison.seeds)."
    seeds = len(score.values)
    if gap <= errors_of_doubt(seeds) * score.difference_error:
        return f"{told} ± {score.difference_error:.4f}: undecided, since {seeds} seeds could give that by chance (95%)."
    return f"{told} ± {score.difference_error:.4f} (standard error over {seeds} seeds)."
