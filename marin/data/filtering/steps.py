"""The steps that measure documents and judge them by rules."""

from __future__ import annotations

from marin.data.documents.artifacts import Attributes, Documents
from marin.data.filtering.artifacts import Agreement
from marin.data.filtering.config import SignalConfig
from marin.execution import step


@step("documents/signals", version="5", fans_out=True)
def annotate(pages: Documents, config: SignalConfig = SignalConfig()) -> Attributes:
    """Signals of every document: language, text features, URL rules, personal data, MinHash bands.

    Nothing is dropped here. The column ``reasons`` says which rules a document fails; see
    ``marin.data.filtering.rules.REASONS`` for their order.
    """
    from marin.data.filtering.annotate import annotate_documents

    return annotate_documents(pages, config)


@step("documents/agreement", version="1", fans_out=True)
def compare_judges(pages: Documents, config: SignalConfig = SignalConfig()) -> Agreement:
    """How often the fast rules and datatrove's filters decide the same on these documents.

    Only the rules are compared: language and addresses are left out, and every document counts as English.
    """
    from marin.data.filtering.agreement import compare_documents

    return compare_documents(pages, config)
