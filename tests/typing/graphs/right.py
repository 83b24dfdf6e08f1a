"""A graph that is wired as it should be."""

from tests.typing.graphs.steps import FLEET, Tokens, extract, mix, tokenize, train_tokenizer


def build(sources: list[str]) -> Tokens:
    """The graph."""
    documents = [extract(source).label(source) for source in sources]
    tokenizer = train_tokenizer(documents[0]).on(FLEET)
    cells = {source: tokenize(one, tokenizer).label("cell") for source, one in zip(sources, documents, strict=True)}
    return mix(cells, tuple(cells.values())).label("all").on(FLEET)
