"""Two identity documents compared: every place that differs is named once, with what stood there."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import pytest

from marin.execution.reasons.comparison import ABSENT, Difference, Kind, Upstream, compare, shown, shown_pair
from tests.execution import recipes
from tests.execution.recipes import Config, Inner, Outer, Rule, document, rich_config, sink, source


def docs(config: Any, dependencies: Any = (), **changes: Any) -> dict[str, Any]:
    """An identity document."""
    return {
        "schema": 1,
        "name": "a/step",
        "version": "1",
        "config": config,
        "dependencies": list(dependencies),
        **changes,
    }


def places(old: Any, new: Any) -> list[tuple[str, Any, Any]]:
    return [(one.path, one.old, one.new) for one in compare(docs(old), docs(new))]


def texts(old: Any, new: Any) -> list[str]:
    return [one.text(lambda identity: identity[:10]) for one in compare(docs(old), docs(new))]


def stored(recipe: dict[str, Any]) -> dict[str, Any]:
    """A document as it comes back from a record."""
    back: dict[str, Any] = json.loads(json.dumps(recipe, sort_keys=True))
    return back


def test_a_recipe_does_not_differ_from_itself_as_it_lies_in_a_record() -> None:
    for target in recipes.graphs().values():
        assert compare(stored(document(target)), document(target)) == ()


def test_each_field_of_a_config_is_named_by_its_path() -> None:
    before = document(source(rich_config()))
    for change, path in (
        ({"rate": 0.5}, "config.rate"),
        ({"extractor": recipes.Extractor.resiliparse}, "config.extractor"),
        ({"weights": {"b": 2, "a": 0.25}}, "config.weights.a"),
        ({"limit": None}, "config.limit"),
        ({"raw": b"\x01"}, "config.raw"),
        ({"rules": (Rule("a", 0.5), Rule("b", 1, keep=True))}, "config.rules[1].keep"),
        ({"later": "on"}, "config.later"),
    ):
        (found,) = compare(before, document(source(rich_config(**change))))
        assert (found.kind, found.path) == (Kind.config, path)


def test_version_and_name_are_kinds_of_their_own() -> None:
    found = compare(docs({"a": 1}), docs({"a": 2}, version="2", name="another"))
    assert [(one.kind, one.text(str)) for one in found] == [
        (Kind.name, "name 'a/step' → 'another'"),
        (Kind.version, "version '1' → '2'"),
        (Kind.config, "a 1 → 2"),
    ]


@pytest.mark.parametrize(
    ("old", "new"), [(1, 1.0), (1, True), (0, False), ("1", 1), (None, False), ([], {}), ({"$float": "nan"}, "nan")]
)
def test_values_that_python_holds_equal_but_json_does_not_differ(old: Any, new: Any) -> None:
    assert places({"a": old}, {"a": new}) == [("a", old, new)]


def test_not_a_number_equals_itself() -> None:
    assert places({"a": {"$float": "nan"}}, {"a": {"$float": "nan"}}) == []
    assert texts({"a": {"$float": "inf"}}, {"a": 1.5}) == ["a inf → 1.5"]


def test_a_member_that_joined_or_left_a_list_is_one_difference() -> None:
    rules = [{"name": name, "threshold": 0.5} for name in "abcdefghij"]
    assert places({"rules": rules}, {"rules": [*rules[:2], {"name": "x", "threshold": 1.0}, *rules[2:]]}) == [
        ("rules[2]", ABSENT, {"name": "x", "threshold": 1.0})
    ]
    assert places({"rules": rules}, {"rules": rules[1:]}) == [("rules[0]", rules[0], ABSENT)]
    assert texts({"set": ["de", "en"]}, {"set": ["de", "en", "fr"]}) == ["set[2] added 'fr'"]
    assert texts({"set": ["de", "en"]}, {"set": ["en"]}) == ["set[0] removed 'de'"]


def test_a_member_that_changed_beside_one_that_joined_is_told_from_it() -> None:
    old = [{"name": "a", "threshold": 1}, {"name": "b", "threshold": 1}]
    new = [{"name": "x", "threshold": 9}, {"name": "a", "threshold": 2}, {"name": "b", "threshold": 1}]
    assert places({"rules": old}, {"rules": new}) == [
        ("rules[0]", ABSENT, {"name": "x", "threshold": 9}),
        ("rules[1].threshold", 1, 2),
    ]


def test_numbers_of_a_list_of_equal_length_are_compared_by_position() -> None:
    assert places({"betas": [0.9, 0.95]}, {"betas": [0.95, 0.99]}) == [
        ("betas[0]", 0.9, 0.95),
        ("betas[1]", 0.95, 0.99),
    ]


def applied(old: list[Any], found: list[Difference]) -> list[Any]:
    """A flat list after differences: removed places count in the old list, the others in the new one."""
    removed = {int(one.path[2:-1]) for one in found if one.new is ABSENT}
    kept = iter([item for at, item in enumerate(old) if at not in removed])
    arrived = {int(one.path[2:-1]): one for one in found if one.new is not ABSENT}
    result: list[Any] = []
    for at in itertools.count():
        if at in arrived:
            if arrived[at].old is not ABSENT:
                assert next(kept) == arrived[at].old
            result.append(arrived[at].new)
            continue
        rest = next(kept, None)
        if rest is None:
            return result
        result.append(rest)
    raise AssertionError


def test_the_differences_of_random_lists_lead_from_one_to_the_other() -> None:
    choose = random.Random(3)
    for _ in range(500):
        old = [choose.randrange(1, 6) for _ in range(choose.randrange(8))]
        new = [choose.randrange(1, 6) for _ in range(choose.randrange(8))]
        found = list(compare(docs({"a": old}), docs({"a": new})))
        assert applied(old, found) == new


def test_a_long_list_that_changed_all_over_is_one_difference_and_an_insertion_into_it_still_one_member() -> None:
    long = list(range(10_000))
    (whole,) = compare(docs({"a": long}), docs({"a": [-one for one in long]}))
    assert (whole.path, whole.old) == ("a", long)
    assert whole.text(str).endswith("(10000 members)")
    assert places({"a": long}, {"a": [*long[:500], -1, *long[500:]]}) == [("a[500]", ABSENT, -1)]


def test_a_replaced_upstream_is_found_wherever_it_stands_in_a_config() -> None:
    one, two = source(Config(count=1)), source(Config(count=2))
    old = document(sink(one, (one, two), Outer({"x": Inner(1, one)}, (one, two))))
    new = document(sink(two, (one, two), Outer({"x": Inner(1, two)}, (one, two))))
    found = compare(old, new)
    pair = recipes.identity(one), recipes.identity(two)
    assert [(item.kind, item.path, item.replaced) for item in found] == [
        (Kind.upstream, "first", pair),
        (Kind.upstream, "nested.parts.x.part", pair),
    ]


def test_an_artifact_that_joined_a_tuple_does_not_shift_the_others() -> None:
    parts = [source(Config(count=count)) for count in range(4)]
    old, new = document(sink(parts[0], tuple(parts[1:3]))), document(sink(parts[0], tuple(parts[1:])))
    (found,) = compare(old, new)
    assert (found.kind, found.path, found.old) == (Kind.upstream, "many[2]", ABSENT)
    assert found.new == Upstream(recipes.identity(parts[3]))
    assert compare(new, old)[0].text(lambda _: "it") == "upstream it removed at many[2]"


def test_artifacts_that_all_changed_are_paired_by_the_part_they_play() -> None:
    def many(*identities: str) -> dict[str, Any]:
        config = {"parts": [{"$dependency": at} for at in range(len(identities))]}
        return docs(config, [[f"parts[{at}]", identity] for at, identity in enumerate(identities)])

    found = compare(many("web-1", "wiki-1"), many("news-2", "web-2", "wiki-2"), lambda one: one.partition("-")[0])
    assert [(item.path, item.replaced or item.new) for item in found] == [
        ("parts[0]", Upstream("news-2")),
        ("parts[1]", ("web-1", "web-2")),
        ("parts[2]", ("wiki-1", "wiki-2")),
    ]


def test_another_part_of_the_same_upstream_is_a_difference() -> None:
    config = {"source": {"$dependency": 0}}
    (found,) = compare(docs(config, [["source", "abc", "train"]]), docs(config, [["source", "abc", "test"]]))
    assert (found.kind, found.text(str)) == (Kind.upstream, "upstream abc: part ['train'] → ['test']")


def test_long_values_are_cut_and_still_show_where_they_differ() -> None:
    assert shown("x" * 500) == "'" + "x" * 58 + "… (500 characters)"
    old, new = "a" * 300 + "one" + "b" * 300, "a" * 300 + "two" + "b" * 300
    before, after = shown_pair(old, new)
    assert "aone" in before
    assert "atwo" in after
    assert max(map(len, (before, after))) < 90
    assert shown_pair("short", "shorter") == ("'short'", "'shorter'")


def test_a_whole_group_of_settings_is_shown_without_quotes_around_its_names() -> None:
    assert texts({}, {"filter": {"b": [1, 2], "a": None}}) == ["filter added {a: None, b: [1, 2]}"]
