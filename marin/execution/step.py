"""`@step`: a function that, called in a graph, returns what it will make."""

from __future__ import annotations

import functools
import inspect
import re
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

from marin.execution.artifact import Artifact, handle_of
from marin.execution.fleet import Fleet

P = ParamSpec("P")
A = TypeVar("A", bound=Artifact)

NAME = re.compile(r"[a-z0-9_]+(/[a-z0-9_]+)*")


@dataclass(frozen=True, eq=False)
class StepFunction:
    """What `@step` knows of a function.

    `cpus` and `memory_gb` are what one call takes of a worker node. A step that `fans_out` only coordinates (it calls
    `run.map` or `run.gang`) and takes no processor itself, so that its own tasks always find room. `inline` steps run
    in the driver: for work that is smaller than starting a task. A step with `cutoff` is a function of its input's
    bytes: when another recipe of it was run on equal bytes, that output is taken over.
    """

    name: str
    version: str
    function: Callable[..., Any]
    result_type: type[Artifact]
    signature: inspect.Signature
    annotations: dict[str, Any]
    cpus: float
    memory_gb: float | None
    fans_out: bool
    inline: bool
    cutoff: bool

    @functools.cached_property
    def defaults(self) -> dict[str, Any]:
        """Every parameter by name, in order, with its default or `inspect.Parameter.empty`."""
        return {name: parameter.default for name, parameter in self.signature.parameters.items()}

    @functools.cached_property
    def _is_plain(self) -> bool:
        """Whether every parameter may be given by place and by name."""
        plain = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return all(parameter.kind is plain for parameter in self.signature.parameters.values())

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name, with defaults; `TypeError` when the call does not fit the signature.

        A graph of ten thousand calls is mostly this, so a call that fits at once is not taken through `inspect`.
        """
        if self._is_plain:
            given = dict(zip(self.defaults, args, strict=False))
            arguments = {**self.defaults, **given, **kwargs}
            once = len(given) == len(args) and given.keys().isdisjoint(kwargs)
            known = len(arguments) == len(self.defaults)
            if once and known and not any(value is inspect.Parameter.empty for value in arguments.values()):
                return arguments
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)


@dataclass(frozen=True, eq=False)
class StepCall:
    """One node of a graph: a step function with its arguments."""

    step: StepFunction
    arguments: dict[str, Any]
    label: str | None = None
    fleet: Fleet | None = None

    @property
    def name(self) -> str:
        """The step's name, which is its folder in the store."""
        return self.step.name


def step(
    name: str,
    *,
    version: str,
    cpus: float = 1.0,
    memory_gb: float | None = None,
    fans_out: bool = False,
    inline: bool = False,
    cutoff: bool = False,
) -> Callable[[Callable[P, A]], Callable[P, A]]:
    """Make a function a step of graphs.

    `name` is its path in the store (`documents/pages`); `version` is the author's word that results are comparable:
    bump it when the code changes what comes out. The function's signature stays, so type checkers see a graph as
    ordinary calls. See `StepFunction` for the resources.
    """
    if not NAME.fullmatch(name):
        raise ValueError(f"a step's name is lower-case path parts like 'documents/pages', got {name!r}")
    if not version:
        raise ValueError(f"the step {name!r} needs a version")

    def decorate(function: Callable[P, A]) -> Callable[P, A]:
        @functools.wraps(function)
        def lazy(*args: P.args, **kwargs: P.kwargs) -> A:
            described = describe(lazy)
            call = StepCall(described, described.bind(args, kwargs))
            return typing.cast(A, handle_of(described.result_type, call))

        lazy.__dict__["_declaration"] = (name, version, cpus, memory_gb, fans_out, inline, cutoff)
        return lazy

    return decorate


def describe(lazy: Callable[..., Any]) -> StepFunction:
    """The `StepFunction` of a decorated function; its annotations are resolved on first use."""
    found = lazy.__dict__.get("_step")
    if found is not None:
        return typing.cast(StepFunction, found)
    name, version, cpus, memory_gb, fans_out, inline, cutoff = lazy.__dict__["_declaration"]
    function = inspect.unwrap(lazy)
    annotations = typing.get_type_hints(function)
    result_type = annotations.pop("return", None)
    if not (isinstance(result_type, type) and issubclass(result_type, Artifact)):
        raise TypeError(f"the step {name!r} must be annotated to return an Artifact class, got {result_type!r}")
    described = StepFunction(
        name,
        version,
        function,
        result_type,
        inspect.signature(function),
        annotations,
        cpus,
        memory_gb,
        fans_out,
        inline,
        cutoff,
    )
    lazy.__dict__["_step"] = described
    return described
