"""The evaluation as tables on a console. Reads only the report itself, so a cached run prints the same."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from marin.evaluation.artifacts import Contamination, Continuation, EvalReport, Metric, RequestCounts, TaskResult

UNKNOWN = "–"


def render(report: EvalReport, places: Mapping[str, str] | None = None) -> RenderableType:
    """Tables of losses, bits per byte and tasks, then continuations, then where everything lies (name to address)."""
    parts: list[RenderableType] = [_losses(report)]
    if report.sources:
        parts.append(_sources(report))
    if report.tasks:
        parts.append(_tasks(report))
    if report.contamination:
        parts.append(_contamination(report))
    parts += [Text(note, style="yellow") for note in notes(report.requests)]
    parts += [_continuation(continuation) for continuation in report.continuations]
    if places:
        parts.append(_places(places))
    return Group(*parts)


def figure(value: float | None, digits: int = 4) -> str:
    """A number for people, or a dash for an unknown one."""
    return UNKNOWN if value is None else f"{value:.{digits}f}"


def gain(report: EvalReport) -> float | None:
    """Nats per token that the model is better than unigrams of the training tokens."""
    if report.validation_loss is None or report.unigram_loss is None:
        return None
    return report.unigram_loss - report.validation_loss


def notes(requests: RequestCounts) -> list[str]:
    """A sentence for each way in which requests were made to fit the model."""
    told = (
        (requests.cut_contexts, requests.answers, "contexts lost their left side to fit the model"),
        (requests.windowed_answers, requests.answers, "answers were longer than the model and scored in windows"),
        (requests.empty_answers, requests.answers, "answers have no text and score 0"),
        (requests.cut_prompts, requests.prompts, "prompts lost their left side to fit the model"),
    )
    return [f"{count:,} of {total:,} {what}" for count, total, what in told if count]


def task_rows(report: EvalReport) -> list[tuple[str, Metric, TaskResult]]:
    """(task, metric, all of the task) of every figure."""
    return [
        (task.name + (" (group)" if task.group else ""), metric, task)
        for task in report.tasks
        for metric in task.metrics
    ]


def found_items(contamination: Contamination | None) -> str:
    """How many items were found in documents, or a dash where none were compared."""
    if contamination is None:
        return UNKNOWN
    return f"{contamination.found:,} of {contamination.items:,} ({contamination.share:.1%})"


def metric_name(metric: Metric) -> str:
    """The name of a metric with its filter, if it has one."""
    return metric.name if metric.filter == "none" else f"{metric.name} ({metric.filter})"


def _losses(report: EvalReport) -> Table:
    table = Table(title=f"Checkpoint at step {report.step:,} ({report.tokens:,} tokens)", title_justify="left")
    table.add_column("loss")
    table.add_column("nats per token", justify="right")
    table.add_row("validation", figure(report.validation_loss))
    table.add_row("unigrams of the training tokens", figure(report.unigram_loss))
    table.add_row("better than unigrams by", figure(gain(report)), style="bold")
    return table


def _sources(report: EvalReport) -> Table:
    table = Table(title="Held-out text", title_justify="left")
    table.add_column("source")
    for heading in ("bits per byte", "nats per token", "tokens", "bytes"):
        table.add_column(heading, justify="right")
    for row in report.sources:
        table.add_row(
            row.source,
            figure(row.bits_per_byte),
            figure(row.nats_per_token),
            f"{row.tokens:,}" + ("" if row.complete else " (first part)"),
            f"{row.bytes:,}",
        )
    if len(report.sources) > 1:
        tokens, size = (sum(getattr(row, name) for row in report.sources) for name in ("tokens", "bytes"))
        table.add_section()
        table.add_row("all", figure(report.bits_per_byte), "", f"{tokens:,}", f"{size:,}", style="bold")
    return table


def _tasks(report: EvalReport) -> Table:
    table = Table(title="Tasks (lm-eval)", title_justify="left")
    table.add_column("task")
    table.add_column("metric")
    for heading in ("value", "± stderr", "chance", "documents", "found in sources", "without these"):
        table.add_column(heading, justify="right")
    for name, metric, task in task_rows(report):
        table.add_row(
            name,
            metric_name(metric),
            figure(metric.value),
            figure(metric.stderr),
            figure(metric.chance, 3),
            f"{task.samples:,}",
            found_items(task.contamination),
            figure(metric.clean),
        )
    return table


def _contamination(report: EvalReport) -> Table:
    table = Table(title="Evaluation items in the sources", title_justify="left")
    table.add_column("evaluation set")
    for heading in ("items found", "not found", "not judged", "documents with items"):
        table.add_column(heading, justify="right")
    for row in report.contamination:
        unjudged = row.items - row.found - row.clean
        table.add_row(row.name, found_items(row), f"{row.clean:,}", f"{unjudged:,}", f"{row.documents:,}")
    return table


def _continuation(continuation: Continuation) -> Panel:
    text = Text(_one_line(continuation.prompt), style="dim")
    text.append("┃", style="bold")
    text.append(_one_line(continuation.text), style="green")
    title = (
        f"{continuation.source} {continuation.document_id[:12]}, {continuation.tokens} tokens, {continuation.finish}"
    )
    return Panel(text, title=Text(title), title_align="left")


def _one_line(text: str) -> str:
    """Text that cannot move the cursor: line ends are shown, other control characters dropped."""
    return "".join("⏎" if c == "\n" else c for c in text if c == "\n" or c == "\t" or c.isprintable())


def _places(places: Mapping[str, str]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, place in places.items():
        table.add_row(Text(name), Text(place))
    return table
