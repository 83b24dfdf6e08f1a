"""The steps that make evaluation sets."""

from __future__ import annotations

from collections.abc import Sequence

from marin.data.documents.artifacts import Attributes, Documents
from marin.data.evalsets.artifacts import EvalSet
from marin.data.evalsets.config import EvalFileConfig, EvalSetConfig
from marin.execution import step


@step("evalsets/heldout", version="3", fans_out=True)
def build_evalset(
    pages: Sequence[Documents],
    signals: Sequence[Attributes],
    duplicates: Attributes,
    config: EvalSetConfig = EvalSetConfig(),
) -> EvalSet:
    """Multiple-choice continuations and perplexity documents from held-out documents.

    A document is held out by the hash of its id. Only those that pass the filters and stay after duplicate removal are
    used.

    Args:
        pages: the sources.
        signals: the signals of each, in the same order.
        duplicates: the duplicates among all sources.
        config: sizes and seed.
    """
    from marin.data.evalsets.heldout import build_from_documents

    return build_from_documents(pages, signals, duplicates, config)


@step("evalsets/file", version="2")
def load_evalset(config: EvalFileConfig) -> EvalSet:
    """The items of an evaluation set that lies in JSON-lines files, for decontamination.

    Raises:
        StepError: a file cannot be read to its end, lacks a field, or there is no item in all files.
    """
    from marin.data.evalsets.files import load_from_files

    return load_from_files(config)
