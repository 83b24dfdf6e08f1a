"""The step that measures documents and judges them by rules."""

from __future__ import annotations

from marin.data.documents.artifacts import Attributes, Documents
from marin.data.filtering.config import SignalConfig
from marin.execution import step


@step("documents/signals", version="2", fans_out=True)
def annotate(pages: Documents, config: SignalConfig = SignalConfig()) -> Attributes:
    """Signals of every document: language, text features, URL rules, personal data, MinHash bands.

    Nothing is dropped here. The column ``reasons`` says which rules a document fails; see
    ``marin.data.filtering.rules.REASONS`` for their order.
    """
    from marin.data.filtering.annotate import annotate_documents

    return annotate_documents(pages, config)
