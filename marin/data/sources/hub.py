"""Rows of a dataset of the Hugging Face hub, by datatrove's reader.

Imports datatrove; import this module inside step bodies only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from datatrove.pipeline.readers import HuggingFaceDatasetReader

from marin.data.inputs.patient import patiently
from marin.data.sources.config import HubDataset
from marin.data.sources.rows import Row, every_record
from marin.execution import StepError
from marin.execution.running.unanswered import STATUSES
from marin.storage import StoreUnavailable

_CLIENTS = frozenset({"httpx", "requests", "urllib3", "aiohttp"})
_END = object()
_OFFLINE = "OfflineModeIsEnabled"
"""What the client was told to be; `datasets` keeps no more of that error than its name in a text."""


def rows_of_dataset(dataset: HubDataset, part: int) -> Iterator[Row]:
    """The records of one part of a dataset.

    The hub is asked again while it is in trouble before the first row. A connection that breaks later, and stays
    broken through the retries of the client, ends the part, which is read again as a whole.

    Raises:
        StepError: there is no such dataset, revision, subset or split.
        StoreUnavailable: the hub is in trouble.
    """
    what = f"dataset {dataset.saved_in or dataset.name!r} at revision {dataset.revision!r}"

    def begin() -> tuple[Iterator[Any], Any]:
        rows = iter(_reader(dataset).run(rank=part, world_size=dataset.parts))
        return rows, _explained(lambda: next(rows, _END), what)

    rows, document = patiently(begin, lambda: what, may_pass=lambda error: isinstance(error, StoreUnavailable))
    number = 0
    while document is not _END:
        yield Row(f"{part}/{number}", document.metadata)
        document = _explained(lambda: next(rows, _END), what)
        number += 1


def _reader(dataset: HubDataset) -> Any:
    if dataset.saved_in is not None:
        return every_record(HuggingFaceDatasetReader(dataset.saved_in, load_from_disk=True))
    options = {"split": dataset.split, "revision": dataset.revision} | (
        {"name": dataset.subset} if dataset.subset is not None else {}
    )
    return every_record(HuggingFaceDatasetReader(dataset.name, dataset_options=options, streaming=True))


def _explained(ask: Any, what: str) -> Any:
    try:
        return ask()
    except Exception as error:  # the hub's client, HTTP libraries and the formats behind it have errors of their own
        text = f"{what} cannot be read: {type(error).__name__}: {' '.join(str(error).split())}"[:500]
        if _may_pass(error):
            raise StoreUnavailable(text) from error
        raise StepError(text) from error


def _may_pass(error: BaseException) -> bool:
    """Whether an error, or what caused it, is a broken connection or an answer of a server in trouble."""
    causes = list(_causes(error))
    if any(_OFFLINE in f"{type(cause).__name__}: {cause}" for cause in causes):
        return False
    statuses = [getattr(getattr(cause, "response", None), "status_code", None) for cause in causes]
    answered = [status for status in statuses if status is not None]
    if answered:
        return answered[0] in STATUSES
    return any(
        isinstance(cause, (ConnectionError, TimeoutError))
        or {base.__module__.partition(".")[0] for base in type(cause).__mro__} & _CLIENTS
        for cause in causes
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__
