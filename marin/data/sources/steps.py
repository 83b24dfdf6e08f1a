"""The step that reads a source of documents."""

from __future__ import annotations

from marin.data.documents.artifacts import Documents
from marin.data.sources.config import SourceConfig
from marin.execution import step


@step("documents/source", version="4", fans_out=True)
def read_source(config: SourceConfig) -> Documents:
    """The documents of files or of a dataset; every record that is none is counted under its reason.

    A file that is cut or damaged loses nobody knows how much: the step ends well and says so as a remark, unless
    ``config.strict`` lets it fail.

    Raises:
        StepError: a file is missing or cannot be read at all, a column is missing, or no document comes out of all
            records.
    """
    from marin.data.sources.reading import read_documents

    return read_documents(config)
