"""What an evaluation measures, and on how much."""

from __future__ import annotations

from dataclasses import dataclass, field

from marin.execution import runtime


@dataclass(frozen=True)
class GenerationConfig:
    """Continuations of held-out documents, written by the model for people to read."""

    prompts: int = 3
    """How many documents are continued (0: none)."""
    prompt_tokens: int = 24
    """How much of each document the model is given."""
    new_tokens: int = 40
    """How much it may write."""
    temperature: float = 0.0
    """0 takes the likeliest token each time; above 0 samples, seeded per prompt."""

    def __post_init__(self) -> None:
        _at_least("generation.prompts", self.prompts, 0, "give 0 for no continuations")
        _at_least("generation.prompt_tokens", self.prompt_tokens, 1, "a continuation needs something to continue")
        _at_least("generation.new_tokens", self.new_tokens, 1, "give prompts=0 for no continuations")
        if not 0.0 <= self.temperature <= 100.0:
            raise ValueError(
                f"generation.temperature is {self.temperature}; give 0 (greedy) or a value up to 100, usually near 1"
            )


@dataclass(frozen=True)
class EvaluationConfig:
    """Sizes, tasks and seeds of one evaluation.

    How requests are batched is not part of the identity: it changes no score by more than rounding.
    """

    choice_items: int | None = 200
    """Multiple-choice items that are scored, from the front of the evaluation set (None: all)."""
    rolling_documents: int | None = 24
    """Documents of the rolling perplexity task (None: all)."""
    heldout_tokens: int | None = 16_384
    """Tokens per source for bits per byte over the packed held-out shards, up to whole sequences (None: all)."""
    max_length: int | None = None
    """Positions a request may use (None: the model's sequence length)."""
    tasks: tuple[str, ...] = ()
    """Further lm-eval tasks or groups, by name; their YAML files lie in `task_folders`."""
    task_limit: int | None = None
    """Documents per further task (None: all)."""
    task_version: str = "1"
    """Your word for what `task_folders` hold: give a new one when a task or its data changes."""
    bootstrap_iterations: int = 100
    """Resamples for metrics without a closed form of their standard error (0: no standard errors at all)."""
    generation: GenerationConfig = field(default_factory=GenerationConfig)
    seed: int = 0
    task_folders: tuple[str, ...] = runtime(())
    """Folders with lm-eval task YAML files. Where they lie is not identity; what they say is in the results."""
    batch_size: int = runtime(32)
    """Most requests in one forward pass."""
    batch_tokens: int = runtime(4_096)
    """Most positions (padding included) in one forward pass."""
    device: str = runtime("cpu")
    """Where the model runs, in torch's words: cpu, cuda, cuda:1."""

    def __post_init__(self) -> None:
        for name in ("choice_items", "rolling_documents", "heldout_tokens", "task_limit"):
            value = getattr(self, name)
            if value is not None:
                _at_least(f"evaluation.{name}", value, 1, "give null for everything there is")
        if self.max_length is not None:
            _at_least("evaluation.max_length", self.max_length, 2, "give null for the model's sequence length")
        _at_least("evaluation.bootstrap_iterations", self.bootstrap_iterations, 0, "give 0 for no standard errors")
        _at_least("evaluation.batch_size", self.batch_size, 1, "one request at a time is the least")
        _at_least("evaluation.batch_tokens", self.batch_tokens, 1, "one position at a time is the least")
        if len(set(self.tasks)) != len(self.tasks):
            raise ValueError(f"evaluation.tasks is {list(self.tasks)}; name each task once")
        if self.tasks and not self.task_folders:
            raise ValueError(
                f"evaluation.tasks is {list(self.tasks)} but evaluation.task_folders is empty; "
                "give the folders that hold their YAML files"
            )

    @property
    def further(self) -> tuple[TaskConfig, ...]:
        """The further tasks one by one, for decontamination."""
        return tuple(TaskConfig(name, self.task_version, self.task_folders) for name in self.tasks)


@dataclass(frozen=True)
class TaskConfig:
    """One lm-eval task or group, whose documents are to be kept out of training text."""

    name: str
    version: str = "1"
    """Your word for what the folders hold."""
    folders: tuple[str, ...] = runtime(())
    """Folders with lm-eval task YAML files."""


def _at_least(name: str, value: int, least: int, way_out: str) -> None:
    if value < least:
        raise ValueError(f"{name} is {value}; it must be at least {least} ({way_out})")
