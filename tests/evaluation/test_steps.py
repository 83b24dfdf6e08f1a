"""The step from end to end on real artifacts: what it reports, what it writes, and that it does so again the same."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from rich.console import Console

from marin.checkpoint.artifacts import Checkpoint
from marin.checkpoint.layout import PUBLISHED
from marin.data.dedup.steps import decontaminate
from marin.data.evalsets.artifacts import CHOICE_FILE, ITEMS_FILE, ROLLING_FILE, EvalSet
from marin.evaluation.artifacts import Contamination, EvalReport
from marin.evaluation.config import EvaluationConfig, GenerationConfig, TaskConfig
from marin.evaluation.steps import evaluate, load_task
from marin.execution import StepError, current_run, materialise, step
from marin.export.steps import export_model
from marin.model.config import ModelConfig
from marin.model.hugging_face.folder import import_model
from marin.tokens.shards.config import Selection
from marin.tokens.shards.steps import tokenize
from marin.tokens.tokenizer.artifacts import Tokenizer
from marin.tokens.tokenizer.steps import train_tokenizer
from tests.data.pages import Page, PageSet, write_pages
from tests.tokens.building import SMALL_TOKENIZER, prose, written_documents

SOURCES = ("docs", "web")
CONFIG = EvaluationConfig(
    choice_items=6,
    rolling_documents=3,
    heldout_tokens=None,
    generation=GenerationConfig(prompts=3, prompt_tokens=8, new_tokens=6),
)

PAGES = PageSet(
    "web",
    (
        (
            Page(f"{prose(1000, 30)} {prose(1, 12).upper()} {prose(101, 5)} {prose(1001, 30)}", id="has c1"),
            Page(f"{prose(1002, 30)} {prose(302, 20)} {prose(1003, 30)}", id="has a further item"),
            Page(prose(1004, 50), id="has nothing"),
        ),
    ),
)


@step("tests/checkpoint", version="1")
def untrained(tokenizer: Tokenizer) -> Checkpoint:
    """A model as it is before the first step, but with router biases, saved as training saves."""
    from marin.checkpoint.identity import as_json
    from marin.checkpoint.progress import Progress
    from marin.checkpoint.ranks import Ranks
    from marin.checkpoint.store import CheckpointStore
    from marin.checkpoint.tensors import model_tensors
    from marin.model.transformer import Transformer

    shape = ModelConfig.shaped(
        width=32,
        layers=2,
        vocab_size=tokenizer.vocab_size,
        head_dim=16,
        experts=4,
        experts_per_token=2,
        sequence_length=64,
        gate_rank=8,
    )
    model = Transformer(shape)
    for router in model.routers():
        router.bias.copy_(torch.linspace(-0.2, 0.2, shape.experts))
    run = current_run()
    progress = Progress(
        step=7,
        next_sequence=0,
        tokens=100,
        updates=7,
        skipped_in_a_row=0,
        metrics=(),
        validations=(),
        random_states=(),
        identity={"model": as_json(shape)},
        parts={},
    )
    found = CheckpointStore(run.state, check_lease=run.check_lease, ranks=Ranks.alone()).save(
        model_tensors(model), progress
    )
    for name, key in found.keys.items():
        run.publish(f"{PUBLISHED}/{name}", key)
    return Checkpoint(
        model=shape,
        step=7,
        tokens=100,
        skipped_steps=0,
        training_loss=6.0,
        validation_loss=5.5,
        unigram_loss=6.25,
        validation_losses={},
        unigram_losses={},
        validation_tokens={},
    )


@step("tests/evalset", version="1")
def written_evalset(items: tuple[str, ...], texts: tuple[str, ...]) -> EvalSet:
    """Items and documents given as JSON lines."""
    run = current_run()
    rows = [json.loads(line) for line in (*items, *texts)]
    asked = [{"id": row["id"], "text": row.get("text") or f"{row['context']} {row['choices'][0]}"} for row in rows]
    for file, lines in ((CHOICE_FILE, items), (ROLLING_FILE, texts), (ITEMS_FILE, tuple(map(json.dumps, asked)))):
        run.write_bytes(file, "".join(line + "\n" for line in lines).encode())
    return EvalSet(
        name="small",
        items=len(items) + len(texts),
        choice_items=len(items),
        rolling_documents=len(texts),
        validation_share=0.1,
        sources=SOURCES,
    )


def graph(items: int, documents: int, config: EvaluationConfig) -> tuple[EvalReport, Any]:
    rows = [(source, "train", 0, prose(n, 120)) for n, source in enumerate(SOURCES * 8)]
    rows += [(source, "validation", 0, prose(50 + n, 40)) for n, source in enumerate(SOURCES * 3)]
    clean = written_documents(tuple(rows), 1 << 20)
    tokenizer = train_tokenizer(clean, SMALL_TOKENIZER)
    heldout = {s: tokenize(clean, tokenizer, Selection(split="validation", source=s)).label(s) for s in SOURCES}
    choice = [
        {
            "id": f"c{n}",
            "source": SOURCES[n % 2],
            "context": prose(n, 12),
            "choices": [prose(100 + n + k, 5) for k in range(4)],
            "answer": n % 4,
            "document_id": f"d{n}",
        }
        for n in range(items)
    ]
    rolling = [
        {"id": f"r{n}", "source": SOURCES[n % 2], "text": prose(50 + n, 40 + 60 * n), "document_id": f"d{n}"}
        for n in range(documents)
    ]
    lines = [tuple(json.dumps(row) for row in rows) for rows in (choice, rolling)]
    checkpoint = untrained(tokenizer)
    evalset = written_evalset(*lines)
    overlap = decontaminate([write_pages(PAGES)], [evalset, *map(load_task, config.further)])
    report = evaluate(checkpoint, tokenizer, evalset, heldout, overlap, config)
    return report, export_model(checkpoint, tokenizer)


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("evaluation")


@pytest.fixture(scope="module")
def report(prefix: Path) -> EvalReport:
    return materialise(graph(8, 4, CONFIG)[0], prefix=str(prefix))


def test_an_untrained_model_is_a_guesser_in_every_figure(report):
    (choice, rolling) = report.tasks
    assert (choice.name, choice.samples) == ("heldout_choice", 6)
    assert (rolling.name, rolling.samples) == ("heldout_rolling", 3)
    assert all(metric.chance == pytest.approx(0.25) for metric in choice.metrics)
    guess = math.log(400)
    for source in report.sources:
        assert source.complete
        assert source.nats_per_token == pytest.approx(guess, rel=0.1)
        assert source.bits_per_byte == pytest.approx(source.nats_per_token * source.tokens / source.bytes / math.log(2))
    assert (report.step, report.validation_loss, report.unigram_loss) == (7, 5.5, 6.25)


def test_contamination_stands_beside_each_score_with_the_score_on_clean_items(report):
    choice, rolling = report.tasks
    assert choice.contamination == Contamination("small", items=6, found=1, clean=5, documents=1)
    assert rolling.contamination == Contamination("small", items=3, found=0, clean=3, documents=1)
    assert report.contamination == (Contamination("small", items=12, found=1, clean=11, documents=1),)
    rows = [json.loads(line) for line in report.read("samples/heldout_choice/documents.jsonl").splitlines()]
    for metric in choice.metrics:
        rest = [row[metric.name] for row in rows if row["doc"]["id"] != "c1"]
        assert metric.clean == pytest.approx(sum(rest) / 5)
    assert all(metric.clean == pytest.approx(metric.value) for metric in rolling.metrics)


def test_continuations_start_where_the_document_was_cut(report):
    assert [text.source for text in report.continuations] == ["docs", "web", "docs"]
    for text in report.continuations:
        document = prose(50 + int(text.document_id[1:]), 400)
        assert document.startswith(text.prompt + text.reference[:1])
        assert 0 < text.tokens <= 6


def test_files_are_standard_json_and_name_every_request(report):
    def refuse(constant):
        raise ValueError(constant)

    results = json.loads(report.read("results.json"), parse_constant=refuse)
    assert results["bits_per_byte"] == report.bits_per_byte
    assert results["configurations"]["heldout_choice"]["target_delimiter"] == " "
    answers = [json.loads(line) for line in report.read("samples/heldout_choice/loglikelihood.jsonl").splitlines()]
    assert [(row["document"], row["index"]) for row in answers] == [(d, k) for d in range(6) for k in range(4)]
    assert set(report.samples) <= set(report.names())
    assert report.requests.answers == 24
    assert report.requests.windowed_documents == 2
    rolled = [
        json.loads(line) for line in report.read("samples/heldout_rolling/loglikelihood_rolling.jsonl").splitlines()
    ]
    (bits,) = [metric for metric in report.tasks[1].metrics if metric.name == "bits_per_byte"]
    nats = -sum(row["log_probability"] for row in rolled)
    assert bits.value == pytest.approx(nats / math.log(2) / sum(len(row["text"].encode()) for row in rolled))
    assert b"BOS" in report.read("report.html")


def test_the_stored_record_prints_the_tables_again(prefix, report):
    again = materialise(graph(8, 4, CONFIG)[0], prefix=str(prefix))
    assert again == report
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(again.present({"everything": str(prefix)}))
    text = console.export_text()
    assert "heldout_choice" in text
    assert str(prefix) in text


def test_a_second_evaluation_elsewhere_gives_the_same_figures(report, tmp_path):
    assert materialise(graph(8, 4, CONFIG)[0], prefix=str(tmp_path)) == report


def test_an_empty_evaluation_set_gives_a_report_without_tasks(prefix):
    empty = materialise(graph(0, 0, CONFIG)[0], prefix=str(prefix))
    assert (empty.tasks, empty.continuations) == ((), ())
    assert len(empty.sources) == 2


def test_the_export_is_the_model_with_its_tokenizer(prefix):
    exported = materialise(graph(8, 4, CONFIG)[1], prefix=str(prefix))
    folder = exported.local("config.json").parent
    told = json.loads((folder / "config.json").read_text())
    model = import_model(folder)
    assert told["eos_token_id"] is not None
    assert model.config.sequence_length == 64
    assert all(torch.equal(router.bias, torch.linspace(-0.2, 0.2, 4)) for router in model.routers())
    from tokenizers import Tokenizer as Read

    assert Read.from_file(str(folder / "tokenizer.json")).get_vocab_size() <= told["vocab_size"]


def test_a_further_task_is_read_from_its_folder_and_limited(prefix, tmp_path):
    (tmp_path / "rows.jsonl").write_text("\n".join(json.dumps({"text": prose(300 + n, 20)}) for n in range(5)))
    task = {
        "task": "more_text",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(tmp_path / "rows.jsonl")}},
        "test_split": "test",
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "text",
        "metric_list": [{"metric": "bits_per_byte", "aggregation": "bits_per_byte", "higher_is_better": False}],
    }
    (tmp_path / "more_text.yaml").write_text(yaml.safe_dump(task))
    config = replace(CONFIG, tasks=("more_text",), task_folders=(str(tmp_path),), task_limit=2)
    report = materialise(graph(8, 4, config)[0], prefix=str(prefix))
    assert [(task.name, task.samples) for task in report.tasks] == [
        ("heldout_choice", 6),
        ("heldout_rolling", 3),
        ("more_text", 2),
    ]
    more = report.tasks[2]
    # Document 2 is in training text, and the two that were scored are not.
    assert more.contamination == Contamination("more_text", items=2, found=0, clean=2, documents=1)
    assert more.metrics[0].clean == pytest.approx(more.metrics[0].value)
    assert report.contamination[0] == Contamination("more_text", items=5, found=1, clean=4, documents=1)
    items = materialise(load_task(TaskConfig("more_text", folders=(str(tmp_path),))), prefix=str(prefix))
    assert [row["id"] for row in items.lines("items.jsonl")] == [f"more_text/{n}" for n in range(5)]
    with pytest.raises(StepError, match=r"defines the task 'hellaswag'; defined are more_text"):
        materialise(graph(8, 4, replace(config, tasks=("hellaswag",)))[0], prefix=str(prefix))


def test_more_positions_than_trained_on_are_refused(prefix):
    with pytest.raises(StepError, match="max_length is 65 but the model was trained on 64 positions"):
        materialise(graph(8, 4, replace(CONFIG, max_length=65))[0], prefix=str(prefix))


def test_places_batches_and_devices_are_not_identity(prefix, report):
    elsewhere = replace(CONFIG, batch_size=2, batch_tokens=128, task_folders=("/nowhere",))
    assert materialise(graph(8, 4, elsewhere)[0], prefix=str(prefix)).identity == report.identity
