"""The report page and the data card of consolidated documents: plain functions of one summary."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any

from marin.data.consolidation.config import Policy
from marin.data.consolidation.decide import DROP_ORDER
from marin.data.documents.pages import template
from marin.data.filtering.personal import Treatment
from marin.execution import External

SCORE_BINS = 20
"""Columns of the figure of scores."""


@dataclass(frozen=True)
class Sample:
    """A document that the report shows: its beginning, ``"kept"`` or the reason it was dropped for, and why."""

    id: str
    source: str
    url: str
    label: str
    why: str
    excerpt: str


@dataclass(frozen=True)
class Listed:
    """An entry of the takedown list, with the number of documents that it names (their copies not counted)."""

    what: str
    reason: str
    documents: int


@dataclass(frozen=True)
class Upstream:
    """A step that the documents were made from: its part, its name as people call it, version and identity."""

    role: str
    step: str
    version: str
    identity: str


@dataclass(frozen=True)
class Cell:
    """Documents of one split, source, topic and quality bucket."""

    split: str
    source: str
    topic: int
    quality: int
    documents: int
    text_bytes: int


@dataclass(frozen=True)
class PersonalCount:
    """Finds of one kind of personal data in documents that stayed, and what was done with them.

    Where they are kept nobody has looked for them, and there are 0.
    """

    kind: str
    treatment: Treatment
    found: int


@dataclass(frozen=True)
class CutCount:
    """Documents that stayed without some passages of one kind, and the characters of these passages.

    Passages of several kinds may overlap; ``"all"`` has every character once.
    """

    kind: str
    documents: int
    characters: int


@dataclass(frozen=True)
class LeftCount:
    """Passages that were marked to be cut and stay, and the documents and characters of them.

    ``holder`` says why: the document that holds their text is ``"dropped"``, or of the ``"other_split"``. Of several
    alike one stays, and the others are cut for its sake.
    """

    holder: str
    documents: int
    passages: int
    characters: int


@dataclass(frozen=True)
class Summary:
    """All that the report and the card say.

    Attributes:
        title: heading.
        read: documents that came in.
        kept: documents that stayed.
        text_bytes: UTF-8 bytes of their text.
        dropped: documents by reason, in the order in which reasons are tried.
        by_source: kept and dropped documents of each source.
        by_language: kept and dropped documents of each language.
        by_licence: kept and dropped documents of each licence.
        lengths: documents by the number of binary digits of their length in characters, kept and dropped.
        scores: documents by score, in `SCORE_BINS` equal steps from 0 to 1, kept and dropped.
        cells: what lies in the shards.
        samples: documents to show.
        takedowns: the takedown list.
        personal: what was done with personal data.
        cuts: what was cut of each kind, all kinds together first; empty where nothing was to be cut.
        left: what was to be cut and stays, by what is wrong with the document that holds it.
        validation_share: share of documents held out.
        upstream: what they were made from.
        policy: the policy, as YAML.
    """

    title: str
    read: int
    kept: int
    text_bytes: int
    dropped: dict[str, int]
    by_source: dict[str, dict[str, int]]
    by_language: dict[str, dict[str, int]]
    by_licence: dict[str, dict[str, int]]
    lengths: dict[str, dict[int, int]]
    scores: dict[str, dict[int, int]]
    cells: tuple[Cell, ...]
    samples: tuple[Sample, ...]
    takedowns: tuple[Listed, ...]
    personal: tuple[PersonalCount, ...]
    cuts: tuple[CutCount, ...]
    left: tuple[LeftCount, ...]
    validation_share: float
    upstream: tuple[Upstream, ...]
    policy: str

    @property
    def unmet_takedowns(self) -> tuple[Listed, ...]:
        """Entries of the takedown list that name no document that came in."""
        return tuple(entry for entry in self.takedowns if not entry.documents)

    def counts(self) -> dict[str, Any]:
        """The numbers, as JSON holds them: equal for every sharding of the same documents."""
        plain = asdict(self)
        del plain["samples"], plain["upstream"], plain["policy"]
        for name, key in (("personal", "kind"), ("cuts", "kind"), ("left", "holder")):
            plain[name] = {one.pop(key): one for one in plain[name]}
        return plain


def policy_text(policy: Policy) -> str:
    """A policy as YAML; of files the version, not the place, which differs from machine to machine."""
    import yaml

    text: str = yaml.safe_dump(_plain(policy), sort_keys=False, allow_unicode=True)
    return text


def _plain(value: Any) -> Any:
    if isinstance(value, External):
        return {"version": value.version}
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (tuple, list)) else value


def report_page(summary: Summary) -> str:
    """One HTML page that needs nothing beside it. All text of documents is escaped."""
    page: str = template("marin.data.consolidation", "templates/report.html").render(
        summary=summary, bars=_bars(summary), figures=_figures(summary), groups=_groups(summary)
    )
    return page


def data_card(summary: Summary) -> str:
    """The README of the documents, in Markdown."""
    card: str = template("marin.data.consolidation", "templates/card.md").render(summary=summary)
    return card


def _bars(summary: Summary) -> list[dict[str, Any]]:
    """A bar for what was kept and for every reason, with its share of all documents."""
    rows = [("kept", summary.kept), *summary.dropped.items()]
    most = max(1, *(count for _, count in rows))
    return [
        {"label": label, "count": count, "width": 100 * count / most, "share": 100 * count / max(1, summary.read)}
        for label, count in rows
    ]


def _figures(summary: Summary) -> list[dict[str, Any]]:
    """The figures of the page: heading, what the columns are, and the columns of the drawing."""
    digits = sorted({digit for counts in summary.lengths.values() for digit in counts})
    length_labels = {
        digit: (_short(1 << (digit - 1)) if digit else "0")
        for digit in (range(digits[0], digits[-1] + 1) if digits else ())
    }
    score_labels = {place: f"{place / SCORE_BINS:g}" if place % 2 == 0 else "" for place in range(SCORE_BINS)}
    return [
        {
            "heading": "Length in characters",
            "text": "Each column holds documents of at least the length below it, up to twice that; kept ones at the "
            "bottom.",
            **_histogram(summary.lengths, length_labels),
        },
        {
            "heading": "Quality score",
            "text": "Each column holds documents of at least the score below it; kept ones at the bottom. The score is "
            "the calibrated probability to be of the classifier's positive set.",
            **_histogram(summary.scores, score_labels),
        },
    ]


def _histogram(counts: dict[str, dict[int, int]], labels: dict[int, str]) -> dict[str, Any]:
    """Columns of an SVG, one for each labelled bin: kept documents at the bottom, dropped ones on top."""
    kept, dropped = counts.get("kept", {}), counts.get("dropped", {})
    most = max((kept.get(place, 0) + dropped.get(place, 0) for place in labels), default=0) or 1
    columns = []
    for number, (place, label) in enumerate(labels.items()):
        low = 150 * kept.get(place, 0) / most
        high = 150 * dropped.get(place, 0) / most
        columns.append(
            {
                "x": 10 + 46 * number,
                "kept": kept.get(place, 0),
                "dropped": dropped.get(place, 0),
                "kept_height": low,
                "kept_y": 160 - low,
                "dropped_height": high,
                "dropped_y": 160 - low - high,
                "label": label,
            }
        )
    return {"columns": columns, "width": 20 + 46 * len(columns)}


def _short(count: int) -> str:
    if count < 1024:
        return str(count)
    return f"{count >> 10}k" if count < 1 << 20 else f"{count >> 20}M"


def _groups(summary: Summary) -> list[tuple[str, list[Sample]]]:
    """Samples by label, kept ones first, then in the order of reasons."""
    order = {label: at for at, label in enumerate(("kept", *DROP_ORDER))}
    labels = sorted({sample.label for sample in summary.samples}, key=lambda label: order.get(label, len(order)))
    return [(label, [sample for sample in summary.samples if sample.label == label]) for label in labels]
