"""The order of documents within a token shard: as they come, or from easy to hard."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from marin.execution import StepError
from marin.tokens.shards.config import METADATA_FIGURE
from marin.tokens.shards.indexed import TokenWriter

WRITTEN_DOCUMENTS = 4096
"""Documents that are put in order and written at once."""


class DocumentOrder:
    """Puts documents into a writer, at once where they stay as they come, otherwise all at the end.

    Equally hard documents keep their order.

    Attributes:
        columns: columns of the documents that the order is made from, beside id and text.
        ids: ids of the documents in the order of the shard; complete after :meth:`finish`.
        difficulties: the figure of each, None where documents stay as they come.
    """

    def __init__(self, writer: TokenWriter, order_by: str) -> None:
        self.columns: tuple[str, ...] = ("metadata",) if order_by.startswith(METADATA_FIGURE) else ()
        self.ids: list[str] = []
        self.difficulties: list[float | None] = []
        self._writer = writer
        self._order_by = order_by
        self._flat: list[npt.NDArray[np.int32]] = []
        self._lengths: list[int] = []

    def add(
        self,
        ids: Sequence[str],
        flat: Sequence[int],
        lengths: Sequence[int],
        text_bytes: Sequence[int],
        metadata: Sequence[str],
    ) -> None:
        """Documents whose tokens lie back to back in ``flat``.

        Raises:
            StepError: a document's metadata lacks the figure; names both.
        """
        self.ids += ids
        if self._order_by == "stored":
            self.difficulties += [None] * len(ids)
            self._writer.add(flat, lengths)
            return
        if self._order_by == "length":
            self.difficulties += [float(length) for length in lengths]
        elif self._order_by == "density":
            self.difficulties += [length / size for length, size in zip(lengths, text_bytes, strict=True)]
        else:
            self.difficulties += [self._figure(*pair) for pair in zip(ids, metadata, strict=True)]
        self._flat.append(np.asarray(flat, dtype=np.int32))
        self._lengths += lengths

    def finish(self) -> None:
        """Write what is held back."""
        if self._order_by == "stored" or not self._lengths:
            return
        flat = np.concatenate(self._flat)
        lengths = np.asarray(self._lengths, dtype=np.int64)
        begins = np.cumsum(lengths) - lengths
        order = np.argsort(np.asarray(self.difficulties, dtype=np.float64), kind="stable")
        for first in range(0, len(order), WRITTEN_DOCUMENTS):
            part = order[first : first + WRITTEN_DOCUMENTS].tolist()
            ids = np.concatenate([flat[begins[index] : begins[index] + lengths[index]] for index in part])
            self._writer.add(ids, lengths[part].tolist())
        self.ids = [self.ids[index] for index in order.tolist()]
        self.difficulties = [self.difficulties[index] for index in order.tolist()]
        self._flat, self._lengths = [], []

    def _figure(self, document_id: str, metadata: str) -> float:
        name = self._order_by.removeprefix(METADATA_FIGURE)
        value = json.loads(metadata).get(name)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise StepError(
                f"document {document_id} has {value!r} as {name!r} in its metadata, which is no number to order by; "
                "set tokenize.order_by to a figure that every document has"
            )
        return float(value)
