"""Arguments that a step's function does not take are told before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from marin.execution import StepError, make_plan, step
from marin.storage import Store
from tests.execution.graphs import MapConfig, Text, leaf, squares


@dataclass(frozen=True)
class Window:
    """A config with what may be written in several ways."""

    size: float
    pair: tuple[int, str]
    names: tuple[str, ...] = ()
    limit: int | None = None


@step("plan/window", version="1")
def window(config: Window, above: Sequence[Text] = (), by_name: dict[str, Text] | None = None) -> Text:
    return Text(text="x")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"config": Window("wide", (1, "a"))}, "config.size is 'wide', which is no float"),  # type: ignore[arg-type]
        ({"config": Window(1, (1, "a"), limit=True)}, "config.limit is True"),
        ({"config": Window(1, (1, "a"), names=("a", 2))}, r"config.names\[1\] is 2"),  # type: ignore[arg-type]
        ({"config": Window(1, ("a", 1))}, r"config.pair\[0\] is 'a'"),  # type: ignore[arg-type]
        ({"config": 3}, "config is 3, which is no Window"),
        ({"config": Window(1, (1, "a")), "above": (squares("s", MapConfig(2)),)}, r"above\[0\] is an artifact Numbers"),
        ({"config": Window(1, (1, "a")), "by_name": {"a": squares("s", MapConfig(2))}}, r"by_name.a is an artifact"),
    ],
)
def test_an_argument_that_is_not_what_the_function_takes_is_told_while_planning(
    arguments: dict[str, Any], told: str, store: Store
) -> None:
    with pytest.raises(StepError, match=rf"plan/window-\w+ cannot run with its arguments: {told}"):
        make_plan([window(**arguments)], store)


def test_what_has_the_same_identity_is_taken_however_it_is_written(store: Store) -> None:
    listed = Window(1, [1, "a"], names=["a", "b"])  # type: ignore[arg-type]
    exact = Window(1.0, (1, "a"), names=("a", "b"))
    plan = make_plan([window(listed, [leaf("a")]), window(exact, (leaf("a"),))], store)
    assert len(plan.targets) == 1
