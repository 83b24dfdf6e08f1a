"""Reading a source in a test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from marin.data.documents.artifacts import Documents
from marin.data.documents.io import iterate_documents
from marin.data.sources.config import SourceConfig
from marin.data.sources.steps import read_source
from marin.execution import materialise


def read(prefix: Path, config: SourceConfig) -> tuple[Documents, dict[str, Any]]:
    """The documents, and what their step counted."""
    documents: Documents = materialise(read_source(config), prefix=str(prefix))
    (record,) = prefix.glob("_steps/documents.source-*.json")
    (flow,) = json.loads(record.read_text())["flows"]
    assert flow["read"] == flow["kept"] + sum(flow["dropped"].values())
    assert flow["kept"] == documents.rows
    return documents, flow


def texts(documents: Documents) -> dict[str | None, str]:
    """Texts by address."""
    return {document.url: document.text for document in iterate_documents(documents)}
