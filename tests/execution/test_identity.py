"""Identity: equal recipes are equal in every process, whatever is no part of the recipe does not count."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import inspect
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest

from marin.execution import Artifact, External, Fleet, UnstableValue, derive_seed, materialise, runtime, step
from marin.execution.planning.plan import planned_steps
from marin.execution.step import StepFunction
from tests.execution import recipes
from tests.execution.graphs import leaf, upper
from tests.execution.recipes import (
    Config,
    Extractor,
    Inner,
    Outer,
    Result,
    Rule,
    document,
    identity,
    rich_config,
    sink,
    source,
    whatever,
)

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text(encoding="utf-8"))
PRINT = (
    "import json; from tests.execution.recipes import graphs, identity; "
    "print(json.dumps({name: identity(target) for name, target in graphs().items()}))"
)


@pytest.mark.parametrize("seed", ["0", "1", "random"])
def test_identities_are_the_golden_ones_in_a_fresh_process_under_any_hash_seed(seed: str) -> None:
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", PRINT], env=environment, cwd=root, capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(done.stdout) == {name: golden["identity"] for name, golden in GOLDEN.items()}


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_an_identity_is_the_sha256_of_the_documents_canonical_text(name: str) -> None:
    text = GOLDEN[name]["document"]
    assert hashlib.sha256(text.encode()).hexdigest() == GOLDEN[name]["identity"] == identity(recipes.graphs()[name])
    assert document(recipes.graphs()[name]) == json.loads(text)


def test_values_are_coerced_by_annotation() -> None:
    assert identity(source(Config(rate=2))) == identity(source(Config(rate=2.0)))
    assert identity(source(Config(limit=1))) == identity(source(Config(limit=1.0)))
    assert identity(source(Config(weights={"a": 1}))) == identity(source(Config(weights={"a": 1.0})))
    assert identity(source(Config(rules=(Rule("a", 1),)))) == identity(source(Config(rules=(Rule("a", 1.0),))))
    assert identity(source(Config(count=1))) != identity(source(Config(count=2)))


def test_numbers_of_different_kinds_stay_different_where_the_annotation_allows_both() -> None:
    ones = [1, 1.0, True, "1"]
    assert len({identity(whatever(one)) for one in ones}) == 4
    assert identity(source(Config(either=1))) != identity(source(Config(either=1.0)))


def test_floats_have_one_form_each() -> None:
    assert identity(whatever(-0.0)) == identity(whatever(0.0))
    assert identity(whatever(1e-3)) == identity(whatever(0.001))
    assert identity(whatever(float("nan"))) == identity(whatever(-float("nan") * 0))
    special = [float("nan"), float("inf"), float("-inf"), "nan", "inf", None, 0.0]
    assert len({identity(whatever(value)) for value in special}) == len(special)


def test_numpy_scalars_equal_their_python_values() -> None:
    assert identity(whatever(np.int64(3))) == identity(whatever(3))
    assert identity(whatever(np.float32(0.5))) == identity(whatever(0.5))
    assert identity(whatever(np.float64(0.1))) == identity(whatever(0.1))
    assert identity(whatever(np.bool_(True))) == identity(whatever(True))


def test_sets_and_mappings_have_no_order_and_sequences_have_one() -> None:
    assert identity(whatever({"b", "a", "c"})) == identity(whatever(frozenset({"c", "b", "a"})))
    assert identity(whatever({"a": 1, "b": 2})) == identity(whatever({"b": 2, "a": 1}))
    assert identity(whatever([1, 2])) == identity(whatever((1, 2)))
    assert identity(whatever([1, 2])) != identity(whatever([2, 1]))
    assert identity(whatever({1, 2})) == identity(whatever([1, 2]))


def test_enums_count_by_name() -> None:
    assert document(source(Config(extractor=Extractor.trafilatura)))["config"]["config"]["extractor"] == "trafilatura"


def test_paths_dates_and_bytes_have_a_form() -> None:
    assert identity(whatever(PurePosixPath("data/part"))) == identity(whatever("data/part"))
    noon = datetime.datetime(2026, 11, 30, 12, tzinfo=datetime.UTC)
    east = noon.astimezone(datetime.timezone(datetime.timedelta(hours=5, minutes=30)))
    assert identity(whatever(noon)) == identity(whatever(east))
    assert identity(whatever(b"ab")) != identity(whatever("ab"))


def test_runtime_fields_never_count() -> None:
    assert identity(source(Config(workers=64, level="DEBUG"))) == identity(source(Config()))


def test_an_added_field_counts_only_away_from_its_literal() -> None:
    @dataclass(frozen=True)
    class Before:
        rate: float = 1.0

    before = identity(whatever(Before()))

    def after(**values: Any) -> str:
        from marin.execution import added

        kind = dataclasses.make_dataclass(
            "After", [("rate", float, 1.0), ("later", str, added("off", since="2026.12"))], frozen=True
        )
        return identity(whatever(kind(**values)))

    assert after() == before
    assert after(later="off") == before
    assert after(later="on") != before


def test_a_default_that_changes_changes_the_identity() -> None:
    one = dataclasses.make_dataclass("Settings", [("rate", float, 1.0)], frozen=True)
    other = dataclasses.make_dataclass("Settings", [("rate", float, 2.0)], frozen=True)
    assert identity(whatever(one())) != identity(whatever(other()))


def test_an_external_input_counts_by_version_and_not_by_place() -> None:
    here = identity(whatever(External("/data/crawl", version="2026-40")))
    assert here == identity(whatever(External("gs://elsewhere/crawl", version="2026-40")))
    assert here != identity(whatever(External("/data/crawl", version="2026-41")))


def test_the_name_and_module_of_a_config_class_do_not_count() -> None:
    one = dataclasses.make_dataclass("One", [("rate", float, 1.0)], frozen=True)
    other = dataclasses.make_dataclass("Other", [("rate", float, 1.0)], frozen=True)
    assert identity(whatever(one())) == identity(whatever(other()))


def test_label_fleet_and_prefix_do_not_count(tmp_path: Path) -> None:
    plain = sink(source())
    assert identity(sink(source().label("web"))) == identity(plain)
    assert identity(sink(source().on(Fleet(workers=8))).label("x").on(Fleet(workers=2))) == identity(plain)
    one = materialise(upper(leaf("a")), str(tmp_path / "one"))
    other = materialise(upper(leaf("a")), str(tmp_path / "other"))
    assert one.identity == other.identity
    assert one.url("text.txt") != other.url("text.txt")
    again, steps = materialise(upper(one), str(tmp_path / "one")), planned_steps([upper(upper(leaf("a")))])
    assert again.identity == steps[1][0].identity


def test_dependencies_are_found_in_tuples_dict_values_and_nested_dataclasses() -> None:
    one, other = source(), source(Config(count=2))
    target = sink(one, (other, one), Outer({"x": Inner(1, one), "a": Inner(2, other)}, (other, other)))
    assert document(target)["dependencies"] == [
        ["first", identity(one)],
        ["many[0]", identity(other)],
        ["many[1]", identity(one)],
        ["nested.parts.a.part", identity(other)],
        ["nested.parts.x.part", identity(one)],
        ["nested.pair[0]", identity(other)],
        ["nested.pair[1]", identity(other)],
    ]
    steps, targets = planned_steps([target])
    assert [step.identity for step in targets[0].upstream] == [identity(one), identity(other)]
    assert len(steps) == 3


def test_where_a_dependency_stands_counts() -> None:
    one, other = source(), source(Config(count=2))
    assert identity(sink(one, (other,))) != identity(sink(other, (one,)))
    assert identity(sink(one, (one, other))) != identity(sink(one, (other, one)))


def test_an_upstream_change_reaches_every_step_below() -> None:
    def top(config: Config) -> str:
        return identity(sink(sink(sink(source(config)))))

    assert top(Config()) == top(Config(workers=9))
    assert top(Config()) != top(Config(rate=1.5))


def test_equal_calls_are_one_step() -> None:
    steps, _ = planned_steps([sink(source(Config(rate=1)), (source(Config(rate=1.0)).label("x"),))])
    assert [planned.name for planned in steps] == ["recipes/source", "recipes/sink"]


def test_a_chain_of_five_thousand_steps_is_planned_without_recursion() -> None:
    target = source()
    for seed in range(5_000):
        target = sink(target, seed=seed)
    steps, targets = planned_steps([target])
    assert len(steps) == 5_001
    assert targets == [steps[-1]]


class Plain:
    """Prints as its address."""

    def method(self) -> None:
        """A bound method is no stable value."""


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (lambda text: text, "lambda"),
        (recipes.closure(), "inner"),
        (recipes.partial, "partial"),
        (Plain(), "Plain"),
        (Plain().method, "method"),
        (object(), "object"),
        (threading.Lock(), "lock"),
        ({1: "a"}, "only text can be a key"),
        (datetime.datetime(2026, 1, 1), "time zone"),
        (np.zeros(3), "ndarray"),
        ("/home/me/data", "absolute path"),
        ("~/data", "absolute path"),
        ("C:\\data", "absolute path"),
        ("file:///data/x", "absolute path"),
        (PurePosixPath("/data"), "absolute path"),
    ],
)
@pytest.mark.parametrize("place", ["plain", "nested"])
def test_a_value_without_a_stable_form_is_refused_naming_its_field(value: Any, says: str, place: str) -> None:
    if place == "plain":
        target, path = whatever(value), "value"
    else:
        target, path = source(Config(anything={"inner": [0, value]})), "config.anything.inner[1]"
    with pytest.raises(UnstableValue) as caught:
        identity(target)
    assert path in str(caught.value)
    assert says in str(caught.value)


def test_an_absolute_path_may_stand_in_a_runtime_field() -> None:
    kind = dataclasses.make_dataclass("Settings", [("folder", str, runtime("/tmp/x"))], frozen=True)
    assert identity(whatever(kind())) == identity(whatever(kind(folder="/elsewhere")))


def test_text_with_slashes_that_is_no_path_is_allowed() -> None:
    for text in ("/", "n/a", "text/html", "http://pages.invalid/a", "a / b", "\n/\n", "crawl-data/CC-MAIN/x.warc.gz"):
        assert identity(whatever(text))


def test_a_set_of_artifacts_is_refused() -> None:
    with pytest.raises(UnstableValue, match=r"value .*use a tuple"):
        identity(whatever({source(), source(Config(count=2))}))


def test_an_artifact_that_was_made_by_hand_is_refused() -> None:
    with pytest.raises(UnstableValue, match="made by hand"):
        identity(sink(Result(value=1)))


def test_reading_a_field_of_a_handle_says_what_to_do() -> None:
    with pytest.raises(AttributeError, match=r"Result\.value of the step 'recipes/source'.*pass the artifact itself"):
        _ = source().value
    assert repr(source()) == "<Result of recipes/source, not materialised>"
    assert source() != source()


def test_a_step_that_returns_no_artifact_is_refused() -> None:
    def body(value: int) -> int:
        return value

    lazy: Callable[[int], Artifact] = step("recipes/number", version="1")(body)  # type: ignore[type-var]
    with pytest.raises(TypeError, match="recipes/number"):
        lazy(1)


@pytest.mark.parametrize("name", ["", "Documents", "a b", "/a", "a/", "a.b", "a-b"])
def test_a_step_name_is_a_path_in_lower_case(name: str) -> None:
    with pytest.raises(ValueError, match="lower-case"):
        step(name, version="1")


def test_seeds_derive_from_the_root_by_name() -> None:
    digest = hashlib.sha256(b"17/data order").hexdigest()
    assert derive_seed(17, "data order") == int(digest[:16], 16) // 2
    assert len({derive_seed(root, name) for root in (0, 1) for name in ("init", "order")}) == 4
    assert all(0 <= derive_seed(root, "x") < 2**63 for root in range(100))


def test_a_whole_config_with_everything_has_an_identity() -> None:
    assert identity(source(rich_config())) != identity(source(rich_config(name="other")))


def odd(first: int, second: float = 2.0, *rest: int, only: str = "x", **more: int) -> None:
    """A signature with everything."""


def plain(first: int, second: float = 2.0, third: str = "x") -> None:
    """The signature of an ordinary step."""


@pytest.mark.parametrize("function", [plain, odd])
@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        ((), {}),
        ((1,), {}),
        ((1, 5.0), {}),
        ((1,), {"second": 3.0}),
        ((), {"second": 3.0, "first": 1}),
        ((1,), {"first": 2}),
        ((1, 2.0, "y"), {}),
        ((1, 2.0, "y"), {"third": "z"}),
        ((1, 2.0, "y", 4), {}),
        ((1,), {"unknown": 2}),
        ((), {"second": 3.0}),
    ],
)
def test_a_calls_arguments_are_bound_as_python_binds_them(
    function: Callable[..., None], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    signature = inspect.signature(function)
    described = StepFunction("a/b", "1", function, Result, signature, {}, 1.0, None, False, False, False)
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        with pytest.raises(TypeError, match=re.escape(str(error))):
            described.bind(args, kwargs)
        return
    bound.apply_defaults()
    assert described.bind(args, kwargs) == dict(bound.arguments)
    assert list(described.bind(args, kwargs)) == list(bound.arguments)
