"""A graph that is wired as it should be."""

from marin.execution import adopted
from tests.typing.graphs.steps import FLEET, Documents, Tokens, extract, mix, tokenize, train_tokenizer


def build(sources: list[str]) -> Tokens:
    """The graph."""
    documents = [extract(source).label(source) for source in sources]
    documents.append(adopted("typing/mine", version="1", kind=Documents).label("mine"))
    tokenizer = train_tokenizer(documents[0]).on(FLEET)
    cells = {source: tokenize(one, tokenizer).label("cell") for source, one in zip(sources, documents, strict=True)}
    return mix(cells, tuple(cells.values())).label("all").on(FLEET)
