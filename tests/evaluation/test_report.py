"""The report shows its figures wherever it is shown, and text of models and documents stays text."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from rich.console import Console

from marin.data.evalsets.config import EvalFileConfig
from marin.evaluation.artifacts import (
    Contamination,
    Continuation,
    EvalReport,
    Metric,
    RequestCounts,
    SourceScore,
    TaskResult,
)
from marin.evaluation.config import EvaluationConfig, GenerationConfig
from marin.evaluation.framing import Framing
from marin.evaluation.page import page
from marin.evaluation.report import render
from marin.evaluation.results import plain
from marin.execution import External
from marin.recipes import scale_named

REPORT = EvalReport(
    step=1200,
    tokens=4_915_200,
    validation_loss=5.1234,
    unigram_loss=7.25,
    bits_per_byte=2.5,
    sources=(
        SourceScore("web", 2.25, 4.5, 30_000, 90_000, True),
        SourceScore("licences", 2.75, 5.5, 32_768, 99_000, False),
    ),
    tasks=(
        TaskResult(
            "heldout_choice",
            False,
            200,
            0,
            (Metric("acc", "none", 0.43, 0.035, 0.25, True, clean=0.3987),),
            Contamination("heldout", 200, 7, 190, 12),
        ),
        TaskResult("heldout_rolling", False, 1, 0, (Metric("bits_per_byte", "none", 2.4, None, None, False),)),
    ),
    continuations=(
        Continuation("web", "abc", "The <b>prompt</b>\n", " [red]goes[/red] on\x1b[2J", " is", 9, "length"),
    ),
    framing=Framing(None, 1),
    max_length=256,
    requests=RequestCounts(800, 0, 12, 0, 40, 3, 0, 0),
    samples=("samples/heldout_choice/loglikelihood.jsonl",),
    contamination=(Contamination("gsm8k", 1319, 1319, 0, 44), Contamination("heldout", 240, 7, 229, 12)),
)


def printed(report=REPORT, places=None) -> str:
    console = Console(width=170, record=True, file=io.StringIO())
    console.print(render(report, places))
    return console.export_text()


def test_the_console_shows_losses_sources_tasks_texts_and_places():
    text = printed(places={"results.json": "file:///somewhere/results.json"})
    for figure in ("5.1234", "7.2500", "2.1266", "2.2500", "2.5000", "0.4300", "0.0350", "0.250", "first part"):
        assert figure in text
    assert "file:///somewhere/results.json" in text
    assert "12 of 800 contexts lost their left side" in text


def test_contamination_is_shown_beside_each_score_and_for_every_set():
    for text in (printed(), " ".join(page(REPORT).split())):
        for shown in ("7 of 200 (3.5%)", "0.3987", "1,319 of 1,319 (100.0%)", "7 of 240 (2.9%)"):
            assert shown in text


def test_what_was_never_compared_is_a_dash_and_not_zero():
    line = next(line for line in printed().splitlines() if "heldout_rolling" in line)
    assert "–" in line
    assert "0 of" not in line
    assert "Evaluation items" not in printed(replace(REPORT, contamination=()))


def test_what_is_unknown_is_a_dash():
    text = printed(replace(REPORT, unigram_loss=None))
    line = next(line for line in text.splitlines() if "better than unigrams" in line)
    assert "–" in line


def test_text_of_the_model_can_neither_style_nor_move_the_console():
    text = printed()
    assert "[red]goes[/red] on[2J" in text
    assert "\x1b" not in text


def test_the_page_escapes_texts_and_needs_nothing_beside_it():
    html = page(REPORT)
    assert "The &lt;b&gt;prompt&lt;/b&gt;" in html
    seen = []

    class Links(HTMLParser):
        def handle_starttag(self, tag, attrs):
            seen.extend((tag, name) for name, _ in attrs if name in ("src", "href"))
            assert tag not in ("script", "link", "b")

    Links().feed(html)
    assert seen == []


def test_the_report_is_standard_json():
    told = json.loads(json.dumps(plain(replace(REPORT, validation_loss=float("nan"))), allow_nan=False))
    assert told["validation_loss"] is None
    assert told["tasks"][0]["metrics"][0]["chance"] == 0.25


def test_an_evaluation_set_that_a_scale_names_twice_is_refused_while_planning():
    scale = scale_named("smoke")
    files = EvalFileConfig("quiz", (External("quiz.jsonl", "1"),), ("text",))
    twice = replace(scale.evaluation, tasks=("quiz",), task_folders=("tasks",))
    assert replace(scale, evaluation=twice).evaluation.further[0].name == "quiz"
    with pytest.raises(ValueError, match="name an evaluation set twice: heldout, quiz, quiz"):
        replace(scale, evaluation=twice, evalfiles=(files,))


def test_showing_and_planning_import_nothing_heavy():
    code = (
        "import sys, marin.evaluation.steps, marin.evaluation.report, marin.evaluation.artifacts, marin.export.steps\n"
        "heavy = 'torch lm_eval numpy datasets ray pyarrow tokenizers safetensors jinja2 yaml'.split()\n"
        "print(sorted(set(heavy) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: EvaluationConfig(choice_items=0), "evaluation.choice_items is 0"),
        (lambda: EvaluationConfig(max_length=1), "evaluation.max_length is 1"),
        (lambda: EvaluationConfig(tasks=("sciq",)), "evaluation.task_folders is empty"),
        (lambda: EvaluationConfig(tasks=("a", "a"), task_folders=("x",)), "name each task once"),
        (lambda: GenerationConfig(temperature=-1.0), "generation.temperature is -1.0"),
    ],
)
def test_a_wrong_setting_names_field_and_value(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()
