"""marin's model behind the interface of lm-eval: requests in, log-probabilities or text out, in request order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

from marin.evaluation.artifacts import RequestCounts
from marin.evaluation.framing import Framer, ScoreRequest
from marin.evaluation.generation import Generator, Prompt
from marin.evaluation.scoring import Score, Scorer
from marin.execution import derive_seed

Record = dict[str, Any]
Sink = Callable[[str, Sequence[Record]], None]
"""Takes a kind of request and one record for each answer to it."""
DEFAULT_NEW_TOKENS = 64
"""How much `generate_until` writes for a task that does not say `max_gen_toks`."""


@dataclass(frozen=True)
class _Sum:
    """Where the scores of one text lie among all requests of a call."""

    first: int
    count: int

    def of(self, scores: Sequence[Score]) -> Score:
        parts = scores[self.first : self.first + self.count]
        return Score(float(sum(part.log_probability for part in parts)), all(part.greedy for part in parts))


class TrainedModel(LM):  # type: ignore[misc]  # lm_eval ships no types
    """The trained model as lm-eval sees it.

    The answers to all requests of a kind go to `sink` before lm-eval sees them: scores outlive a failing aggregation.
    """

    def __init__(
        self,
        framer: Framer,
        scorer: Scorer,
        generator: Generator,
        *,
        seed: int = 0,
        sink: Sink | None = None,
    ) -> None:
        super().__init__()
        self.framer = framer
        self.scorer = scorer
        self.generator = generator
        self.seed = seed
        self.sink = sink
        self._counts: Counter[str] = Counter()

    @property
    def counts(self) -> RequestCounts:
        """What was asked so far, and what had to be cut to fit."""
        return RequestCounts(**{name: self._counts[name] for name in RequestCounts.__dataclass_fields__})

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """(log-probability, greedy) of each (context, answer). An answer without text scores (0.0, True)."""
        answers = [self.framer.answer(*request.args) for request in requests]
        self._counts["answers"] += len(answers)
        self._counts["empty_answers"] += sum(answer.empty for answer in answers)
        self._counts["cut_contexts"] += sum(answer.context_cut for answer in answers)
        self._counts["windowed_answers"] += sum(answer.answer_windowed for answer in answers)
        scores = self._score([answer.requests for answer in answers])
        records = [
            {
                **_origin(request),
                "context": request.args[0],
                "answer": request.args[1],
                "scored_tokens": sum(part.scored for part in answer.requests),
                "context_cut": answer.context_cut,
                "answer_windowed": answer.answer_windowed,
                "log_probability": score.log_probability,
                "greedy": score.greedy,
            }
            for request, answer, score in zip(requests, answers, scores, strict=True)
        ]
        self._record("loglikelihood", records)
        return [(score.log_probability, score.greedy) for score in scores]

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        """Log-probability of each whole text, every token of it scored once."""
        windows = [self.framer.document(request.args[0]) for request in requests]
        self._counts["documents"] += len(windows)
        self._counts["windowed_documents"] += sum(len(parts) > 1 for parts in windows)
        scores = self._score(windows)
        records = [
            {
                **_origin(request),
                "text": request.args[0],
                "scored_tokens": sum(part.scored for part in parts),
                "windows": len(parts),
                "log_probability": score.log_probability,
            }
            for request, parts, score in zip(requests, windows, scores, strict=True)
        ]
        self._record("loglikelihood_rolling", records)
        return [score.log_probability for score in scores]

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """A continuation of each context, up to its first stop text, the end of the document or `max_gen_toks`."""
        texts = []
        records = []
        repeats: Counter[tuple[Any, ...]] = Counter()
        for request in requests:
            context, options = request.args
            new_tokens = int(options.get("max_gen_toks", DEFAULT_NEW_TOKENS))
            temperature = float(options.get("temperature", 1.0)) if options.get("do_sample") else 0.0
            ids, cut = self.framer.prompt(context, new_tokens)
            self._counts["prompts"] += 1
            self._counts["cut_prompts"] += cut
            if not ids:
                raise ValueError(
                    "a generation task gives an empty prompt, and training put no BOS before documents: there is "
                    "nothing to continue; give the task a description or a prompt text"
                )
            name = (request.task_name, request.doc_id, request.idx)
            seed = derive_seed(self.seed, "/".join(map(str, (*name, repeats[name]))))
            repeats[name] += 1
            prompt = Prompt(tuple(ids), seed, _stops(options.get("until")))
            (generation,) = self.generator.generate([prompt], new_tokens, temperature)
            texts.append(generation.text)
            finish = generation.finish.value
            origin = _origin(request)
            records.append({**origin, "context": context, "text": texts[-1], "finish": finish, "prompt_cut": cut})
        self._record("generate_until", records)
        return texts

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Refused: the model was trained on documents, and a template would frame text as training never did."""
        raise NotImplementedError(
            "this model was trained on documents and has no chat template; run the task without apply_chat_template"
        )

    def _score(self, groups: Sequence[Sequence[ScoreRequest]]) -> list[Score]:
        """Score all requests in one call, and add up each group. An empty group scores 0."""
        flat: list[ScoreRequest] = []
        sums = []
        for group in groups:
            sums.append(_Sum(len(flat), len(group)))
            flat += group
        scores = self.scorer.score(flat)
        return [place.of(scores) for place in sums]

    def _record(self, kind: str, records: Sequence[Record]) -> None:
        if self.sink is not None:
            self.sink(kind, records)


def _origin(request: Instance) -> Record:
    return {"task": request.task_name, "document": request.doc_id, "index": request.idx}


def _stops(until: object) -> tuple[str, ...]:
    if until is None:
        return ()
    return (until,) if isinstance(until, str) else tuple(str(stop) for stop in until)  # type: ignore[attr-defined]
