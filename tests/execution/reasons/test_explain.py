"""Why steps run: the setting in which a difference began, found with few reads."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass

import pytest

from marin.execution import Artifact, Plan, Runner, RunOptions, make_plan, step
from marin.execution.reasons.explain import READS, explain, note_changed_code
from marin.execution.running.inline import InlineBackend
from marin.storage import CountedStore, Store, StoreUnavailable


@dataclass(frozen=True, kw_only=True)
class Value(Artifact):
    number: int


@step("why/crawl", version="1", inline=True)
def crawl(pages: int, site: str = "web") -> Value:
    return Value(number=pages)


@step("why/pages", version="1", inline=True)
def pages(source: Value, extractor: str = "fast") -> Value:
    return Value(number=source.number + 1)


@step("why/clean", version="1", inline=True)
def clean(parts: tuple[Value, ...], threshold: float = 0.5) -> Value:
    return Value(number=sum(part.number for part in parts))


@step("why/model", version="1", inline=True)
def model(data: Value, steps: int = 10) -> Value:
    return Value(number=data.number * steps)


@step("why/link", version="1", inline=True)
def link(above: Value | None, seed: int = 0) -> Value:
    return Value(number=1 if above is None else above.number + 1)


def graph(web: int = 100, *, steps: int = 10, threshold: float = 0.5, extractor: str = "fast") -> Value:
    """web and wiki: crawl → pages, both → clean → model."""
    parts = (
        pages(crawl(web), extractor).label("web"),
        pages(crawl(50, "wiki"), extractor).label("wiki"),
    )
    return model(clean(parts, threshold), steps)


def run(target: Artifact, store: Store) -> None:
    plan = make_plan([target], store)
    explain(plan, store)
    assert Runner(store, plan, RunOptions(max_concurrent=1), InlineBackend).run().succeeded


def explained(target: Artifact, store: Store) -> tuple[dict[str, str], CountedStore]:
    """Reasons by label or name, and the store that counted what was asked for them."""
    counted = CountedStore(store)
    plan = make_plan([target], counted)
    counted.requests.clear()
    explain(plan, counted)
    return {one.call.label or one.name: one.reason for one in plan.steps}, counted


def without_ids(text: str) -> str:
    return re.sub(r"-[0-9a-f]{10}", "", text)


def test_every_step_below_a_change_names_the_setting_in_which_it_began(store: Store) -> None:
    run(graph(100), store)
    plan = make_plan([graph(200)], store)
    explain(plan, store)
    assert [without_ids(one.reason) for one in plan.steps] == [
        "pages 100 → 200 (against why/crawl)",
        "upstream why/crawl: pages 100 → 200 (against why/pages (web))",
        "",
        "",
        "upstream why/crawl: pages 100 → 200 (against why/clean)",
        "upstream why/crawl: pages 100 → 200 (against why/model)",
    ]


def test_a_change_of_its_own_and_one_above_are_both_named(store: Store) -> None:
    run(graph(100), store)
    reasons, _ = explained(graph(200, steps=20, threshold=0.25), store)
    assert without_ids(reasons["why/model"]) == (
        "steps 10 → 20; upstream why/clean: threshold 0.5 → 0.25; upstream why/crawl: pages 100 → 200"
        " (against why/model)"
    )


def test_one_setting_that_reaches_a_step_on_two_ways_is_named_for_each_step_that_has_it(store: Store) -> None:
    run(graph(100), store)
    reasons, _ = explained(graph(100, extractor="slow"), store)
    assert without_ids(reasons["why/model"]) == (
        "upstream why/pages (web): extractor 'fast' → 'slow'; upstream why/pages (wiki): extractor 'fast' → 'slow'"
        " (against why/model)"
    )


def test_a_step_above_that_is_there_already_is_followed_through_the_records(store: Store) -> None:
    run(graph(100), store)
    run(pages(crawl(200), "fast").label("web"), store)
    reasons, counted = explained(graph(200), store)
    assert reasons["web"] == ""
    assert without_ids(reasons["why/clean"]) == "upstream why/crawl: pages 100 → 200 (against why/clean)"
    assert counted.requests["GET"] <= 6  # two records compared with, and what lies above the one that differs


def test_records_are_read_once_for_all_steps_of_a_name(store: Store) -> None:
    for count in range(8):
        run(graph(count), store)
    _, counted = explained(graph(100, extractor="slow"), store)
    # crawl, pages of web, clean, model: 8 each; wiki's pages with the other extractor
    assert counted.requests == {"GET": 4 * 8 + 1}


def test_however_many_records_there_are_a_plan_reads_a_few_dozen(store: Store) -> None:
    for count in range(60):
        run(graph(count), store)
    reasons, counted = explained(graph(1_000), store)
    assert counted.requests["GET"] <= READS + 3
    assert "pages " in reasons["web"]
    assert "of the" in reasons["why/model"] or "upstream why/crawl" in reasons["why/model"]


def test_the_record_that_had_the_place_of_a_step_in_the_last_run_is_found_among_many(store: Store) -> None:
    wide = [crawl(count) for count in range(120)]
    run(clean(tuple(wide)), store)
    changed = [*wide[:77], crawl(5_000), *wide[78:]]
    run(clean(tuple(changed)), store)
    again = [*wide[:77], crawl(6_000), *wide[78:]]
    plan = make_plan([clean(tuple(again))], store)
    explain(plan, store)
    reasons = {one.call.arguments.get("pages", "clean"): without_ids(one.reason) for one in plan.steps if one.reason}
    assert reasons == {
        6_000: "pages 5000 → 6000 (against why/crawl)",
        "clean": "upstream why/crawl: pages 5000 → 6000 (against why/clean)",
    }


def test_a_changed_member_of_a_wide_graph_is_compared_with_what_it_was(store: Store) -> None:
    wide = [crawl(count) for count in range(300)]
    run(clean(tuple(wide)), store)
    reasons, counted = explained(clean((*wide[:77], crawl(77, "mirror"), *wide[78:])), store)
    assert without_ids(reasons["why/clean"]).startswith("upstream why/crawl: site 'web' → 'mirror' (against")
    assert counted.requests["GET"] == 2
    assert counted.requests["LIST"] == 0


def test_in_a_crowd_of_records_earlier_plans_tell_the_one_to_compare_with(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wide(site: str) -> list[Value]:
        return [crawl(count, site) for count in range(80)]

    for number, site in enumerate(("a", "b")):
        monkeypatch.setattr(
            "marin.execution.running.runner.new_run", lambda number=number: f"20261130T00000{number}-00000000"
        )
        run(clean(tuple(wide(site))), store)
    plan = make_plan([clean(tuple(wide("c")))], store)
    counted = CountedStore(store)
    explain(plan, counted)
    assert counted.requests["GET"] <= READS + 3
    first = [one for one in plan.steps if one.name == "why/crawl"][:20]
    assert {without_ids(one.reason).partition(" (")[0] for one in first} == {"site 'b' → 'c'"}


def test_a_graph_that_was_never_run_says_so_and_reads_nothing(store: Store) -> None:
    reasons, counted = explained(graph(), store)
    assert set(reasons.values()) == {"never run here"}
    assert not counted.requests


def test_a_step_that_joins_others_is_compared_with_one_of_them_and_says_that_it_is_of_this_graph(store: Store) -> None:
    run(clean((crawl(1),)), store)
    reasons, counted = explained(clean((crawl(1), crawl(2))), store)
    plan = make_plan([clean((crawl(1), crawl(2)))], store)
    explain(plan, store)
    joined = next(one for one in plan.steps if one.call.arguments.get("pages") == 2)
    assert re.fullmatch(r"pages 1 → 2 \(against why/crawl of this graph\)", without_ids(joined.reason))
    assert without_ids(reasons["why/clean"]) == "upstream why/crawl added at parts[1] (against why/clean)"
    assert counted.requests["GET"] == 1


def test_a_long_chain_below_a_change_is_explained_without_recursion_and_within_the_reads(store: Store) -> None:
    def chain(seed: int) -> Value:
        target = link(None, seed)
        for _ in range(500):
            target = link(target)
        return target

    plan = make_plan([chain(1)], store)
    assert Runner(store, plan, RunOptions(max_concurrent=1), InlineBackend).run().succeeded
    counted = CountedStore(store)
    plan = make_plan([chain(2)], counted)
    counted.requests.clear()
    explain(plan, counted)
    assert counted.requests["GET"] <= READS + 3
    for one in plan.steps[1:]:
        assert without_ids(one.reason).startswith("upstream why/link: seed 1 → 2"), one.reason
    assert without_ids(plan.steps[0].reason) == "seed 1 → 2 (against why/link)"


def test_a_damaged_record_explains_nothing_and_harms_nothing(store: Store) -> None:
    run(crawl(1), store)
    run(crawl(2, "mirror"), store)
    plan = make_plan([crawl(1)], store)
    store.put(plan.steps[0].record_key, b"{ broken")
    reasons, _ = explained(crawl(3), store)
    assert without_ids(reasons["why/crawl"]).startswith("pages 2 → 3, site 'mirror' → 'web' (against why/crawl, ")


class Silent(CountedStore):
    """A store that lists and gives no answer to a read."""

    def read(self, key: str) -> bytes:
        raise StoreUnavailable("503 slow down")


def test_a_store_that_gives_no_answer_costs_the_reason_and_not_the_run(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    run(crawl(1), store)
    plan = make_plan([crawl(2)], store)
    with caplog.at_level(logging.WARNING):
        explain(plan, Silent(store))
    assert plan.steps[0].reason == "no record of this recipe"
    assert "503 slow down" in caplog.text


def test_a_damaged_plan_of_an_earlier_run_costs_the_reason_and_not_the_run(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    for count in range(50):
        run(crawl(count), store)
    for info in store.list("_runs"):
        if info.key.endswith("/plan.json"):
            store.put(info.key, b'{"steps": [{}]}')
    plan = make_plan([crawl(1_000)], store)
    with caplog.at_level(logging.WARNING):
        explain(plan, store)
    assert plan.steps[0].reason == "no record of this recipe"
    assert "plan.json cannot be read (KeyError: 'identity'); it may be removed" in caplog.text


def test_reasons_that_are_no_lack_of_a_record_stay_as_they_are(store: Store) -> None:
    run(graph(), store)
    plan = make_plan([graph()], store, force="why/crawl")
    before = [one.reason for one in plan.steps]
    explain(plan, store)
    assert [one.reason for one in plan.steps] == before
    assert "forced" in before


def test_the_code_of_cached_steps_is_compared_with_one_read_each(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run(graph(), store)
    counted = CountedStore(store)
    plan: Plan = make_plan([graph()], counted)
    counted.requests.clear()
    note_changed_code(plan, counted)
    assert {one.reason for one in plan.steps} == {""}
    assert counted.requests == {"GET": len(plan.steps)}

    made_with = plan.steps[0].record
    assert made_with is not None
    comparable = made_with.code_digest.partition(":")[0]
    monkeypatch.setattr("marin.execution.code_digest.code_digest", lambda function: f"{comparable}:0000000000000000")
    assert note_changed_code(plan, counted) == plan.steps
    assert all("code changed" in one.reason for one in plan.steps)
    assert counted.requests == {"GET": len(plan.steps)}
