"""Small page sets for the data rooms' tests, written as a real step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from marin.data.documents.artifacts import Documents
from marin.execution import current_run, step


@dataclass(frozen=True)
class Page:
    """One page; its id is made from its url and text unless it is given."""

    text: str
    url: str = ""
    id: str = ""


@dataclass(frozen=True)
class PageSet:
    """Pages of one source in the given shards. Empty shards are left out, as the document writer does."""

    source: str
    shards: tuple[tuple[Page, ...], ...]


@step("test/pages", version="1")
def write_pages(config: PageSet) -> Documents:
    """The pages as a documents artifact."""
    from marin.data.documents.io import DocumentWriter, documents_of
    from marin.data.documents.schema import Document, make_document, text_hash

    shards: list[Any] = []
    for number, pages in enumerate(config.shards):
        with DocumentWriter(current_run().write, f"pages-{number}", source=config.source) as writer:
            for place, page in enumerate(pages):
                url = page.url or f"http://{config.source}.invalid/{place}"
                if page.id:
                    document = Document(page.id, page.text, text_hash(page.text), config.source, page.url or None)
                else:
                    document = make_document(page.text, source=config.source, url=url)
                writer.write(document)
        shards.extend(writer.shards)
    return documents_of(config.source, shards)


def spread(pages: list[Page], shards: int) -> tuple[tuple[Page, ...], ...]:
    """Pages dealt out over so many shards."""
    return tuple(tuple(pages[start::shards]) for start in range(shards))
