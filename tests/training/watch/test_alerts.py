"""Each alert rule on a curve that fires it and on one that does not; the rules file; the webhook."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import yaml

from marin.execution import StepError
from marin.training.watch.evaluation import Change, Judge, evaluate
from marin.training.watch.rules import PACKAGED, parse_rules, read_rules
from marin.training.watch.webhook import Webhook
from tests.training.watch.receiver import Receiver

RULES = read_rules()
Line = dict[str, Any]


def calm(step: int) -> Line:
    """A line of a run in which nothing is wrong, ten seconds after the one before."""
    return {
        "step": step,
        "time": 1e9 + 10.0 * step,
        "loss": 3.0 + 5.0 / step,
        "gradient_norm": 0.4,
        "skipped": False,
        "mfu": 0.4,
        "life": "one",
        "memory": {"device": "cuda"},
        "router": {"dropped_fraction": 0.0},
        "routing": {"entropy_share": 0.999, "bias_largest": 12.0},
    }


def run_of(count: int, change: Callable[[Line], Mapping[str, Any]] = lambda line: {}) -> list[Line]:
    """A calm run, with what `change` says of each line."""
    return [{**line, **change(line)} for line in map(calm, range(1, count + 1))]


def told(changes: list[Change]) -> list[tuple[str, bool, int]]:
    return [(change.rule.name, change.fired, change.step) for change in changes]


def between(first: int, last: int, **figures: Any) -> Callable[[Line], Mapping[str, Any]]:
    return lambda line: figures if first <= line["step"] <= last else {}


def test_a_calm_run_gives_no_alert() -> None:
    assert evaluate(RULES, run_of(2000)) == []


FIRING: dict[str, tuple[list[Line], list[tuple[str, bool, int]]]] = {
    "loss_floor": (
        run_of(1400, lambda line: {"loss": 4.2} if line["step"] > 1200 else {"loss": 3.0}),
        [("loss_floor", True, 1250)],
    ),
    "gradient_norm": (
        run_of(300, between(100, 102, gradient_norm=2.5)),
        [("gradient_norm", True, 100), ("gradient_norm", False, 103)],
    ),
    "skipped_steps": (
        run_of(300, lambda line: {"skipped": line["step"] in (50, 80, 110)}),
        [("skipped_steps", True, 110), ("skipped_steps", False, 141)],
    ),
    "dropped_tokens": (
        run_of(100, between(40, 41, router={"dropped_fraction": 0.08})),
        [("dropped_tokens", True, 40), ("dropped_tokens", False, 42)],
    ),
    "routing_entropy": (
        run_of(300, between(150, 300, routing={"entropy_share": 5.90 / math.log(384), "bias_largest": 1.0})),
        [("routing_entropy", True, 195)],
    ),
    "router_bias": (
        run_of(100, between(90, 100, routing={"entropy_share": 0.999, "bias_largest": 401.0})),
        [("router_bias", True, 90)],
    ),
    "mfu": (
        run_of(300, lambda line: {"mfu": 0.1 if line["step"] > 100 and line["step"] % 3 else 0.3}),
        [("mfu", True, 169)],
    ),
    "save_failed": (
        run_of(300, between(50, 50, checkpoint={"failed_step": 48})),
        [("save_failed", True, 50), ("save_failed", False, 231)],
    ),
    "restart": (
        run_of(100, between(60, 100, life="two")),
        [("restart", True, 60), ("restart", False, 61)],
    ),
    "no_progress": (
        run_of(100, lambda line: {"time": calm(line["step"])["time"] + (2000 if line["step"] > 50 else 0)}),
        [("no_metrics", True, 50), ("no_progress", True, 50), ("no_metrics", False, 51), ("no_progress", False, 51)],
    ),
}

QUIET: dict[str, list[Line]] = {
    "a loss that climbs by less than a nat": run_of(1400, lambda line: {"loss": 3.9 if line["step"] > 1200 else 3.0}),
    "one bad batch": run_of(1400, between(1200, 1200, loss=9.0)),
    "a large gradient in warm-up": run_of(1000, between(1, 10, gradient_norm=50.0)),
    "three skipped steps within an hour": run_of(400, lambda line: {"skipped": line["step"] % 100 == 0}),
    "seven percent dropped": run_of(100, between(40, 41, router={"dropped_fraction": 0.07})),
    "the public run's entropy": run_of(
        300, between(1, 300, routing={"entropy_share": 5.925 / math.log(384), "bias_largest": 399.0})
    ),
    "a minute of uneven routing": run_of(300, between(200, 206, routing={"entropy_share": 0.97, "bias_largest": 1.0})),
    "low MFU on a CPU": run_of(300, lambda line: {"mfu": 0.05, "memory": {"device": "cpu"}}),
    "low MFU in less than half of the lines": run_of(300, lambda line: {"mfu": 0.1 if line["step"] % 3 == 0 else 0.3}),
    "a pause of nine minutes": run_of(
        100, lambda line: {"time": calm(line["step"])["time"] + (530 if line["step"] > 50 else 0)}
    ),
    "figures that a run does not have": [
        {"step": n, "time": 1e9 + n, "loss": None, "gradient_norm": None} for n in range(1, 100)
    ],
}


@pytest.mark.parametrize("name", FIRING)
def test_a_rule_fires_once_and_clears(name: str) -> None:
    lines, expected = FIRING[name]
    assert told(evaluate(RULES, lines)) == expected


@pytest.mark.parametrize("name", QUIET)
def test_a_rule_keeps_quiet_for(name: str) -> None:
    assert told(evaluate(RULES, QUIET[name])) == []


def test_every_rule_of_the_file_has_a_curve_that_fires_it() -> None:
    fired = {change.rule.name for lines, _ in FIRING.values() for change in evaluate(RULES, lines)}
    assert fired | {"evaluation_worse"} == {rule.name for rule in RULES}


def test_an_evaluation_that_is_worse_than_the_one_before_is_told() -> None:
    scores = [{"step": step, "time": 1e9, "loss": loss} for step, loss in ((10, 4.0), (20, 3.5), (30, 3.6), (40, 3.4))]
    assert told(evaluate(RULES, run_of(50), scores)) == [
        ("evaluation_worse", True, 30),
        ("evaluation_worse", False, 40),
    ]
    assert told(evaluate(RULES, run_of(50), scores[:2])) == []


def test_silence_counts_from_a_start_and_has_more_time_while_a_process_starts() -> None:
    judge = Judge(RULES, 1000)
    judge.begin(0.0)
    assert told(judge.tick(2600.0, starting=True, sampled=2590.0)) == []
    assert told(judge.tick(2800.0, starting=True, sampled=2790.0)) == [("no_progress", True, 0)]
    changes = judge.line({**calm(1), "time": 2900.0})
    assert told(changes) == [("no_progress", False, 1)]
    assert told(judge.tick(3520.0, sampled=2900.0)) == [("no_metrics", True, 1)]
    assert told(judge.line({**calm(2), "time": 3530.0})) == [], "a step is no sample while the store refuses it"
    assert told(judge.tick(3540.0, sampled=3535.0)) == [("no_metrics", False, 2)]


def test_what_an_earlier_process_left_is_compared_with_what_a_restore_gives() -> None:
    judge = Judge(RULES, 2000)
    for line in run_of(1100):
        judge.line(line, silently=True)
    changes = [change for step in range(1101, 1152) for change in judge.line({**calm(step), "loss": 7.0})]
    assert ("loss_floor", True, 1150) in told(changes)


def test_a_fault_of_the_rules_is_named_by_rule_and_field() -> None:
    good = yaml.safe_load(PACKAGED.read_text())
    rule = {"name": "x", "severity": "look", "when": "w", "why": "y", "kind": "limit", "metric": "loss", "above": 1.0}

    def faults(*entries: Mapping[str, Any]) -> str:
        with pytest.raises(StepError) as caught:
            parse_rules({"schema": 2, "alerts": list(entries)}, "mine.yaml")
        return str(caught.value)

    assert "rule x: metric is missing" in faults({k: v for k, v in rule.items() if k != "metric"})
    assert "rule x: limit is no field of the kind limit" in faults({**rule, "limit": 3})
    assert "rule x: above is 'high'; give a number" in faults({**rule, "above": "high"})
    assert "rule x: give either `above` or `below`" in faults({**rule, "below": 1.0})
    assert "rule x: severity is 'loud'; give one of page, look, note" in faults({**rule, "severity": "loud"})
    assert "rule x: kind is 'odd'; give one of" in faults({**rule, "kind": "odd"})
    assert "rule x: there are two of this name" in faults(rule, rule)
    assert "rule number 1: it is no table" in faults("loss > 1")  # type: ignore[arg-type]  # what a person may write
    with pytest.raises(StepError, match="`schema` is not 2"):
        parse_rules({**good, "schema": 1}, "old.yaml")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver([503, 500])
    yield made
    made.server.shutdown()
    made.server.server_close()


def test_a_message_is_tried_again_until_the_receiver_takes_it(receiver: Receiver) -> None:
    webhook = Webhook(receiver.url, pause=0.01)
    for number in range(3):
        webhook.send({"alert": "loss_floor", "number": number})
    deadline = time.monotonic() + 10
    while len(receiver.received) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    webhook.close()
    assert [message["number"] for message in receiver.received] == [0, 1, 2]


def test_a_receiver_that_is_gone_holds_nobody_up_and_its_address_is_told_to_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    slow = Receiver([500] * 100, delay=0.3)
    with caplog.at_level(logging.WARNING):
        webhook = Webhook(slow.url, timeout=0.05, pause=0.01)
        started = time.perf_counter()
        for number in range(200):
            webhook.send({"alert": f"number {number}"})
        assert time.perf_counter() - started < 0.2
        webhook.close(seconds=2)
    slow.server.shutdown()
    slow.server.server_close()
    assert "is dropped" in caplog.text
    assert "could not be posted" in caplog.text
    assert "very-secret" not in caplog.text
