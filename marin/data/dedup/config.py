"""Configuration of duplicate removal and decontamination."""

from __future__ import annotations

from dataclasses import dataclass, replace

from marin.execution import runtime


@dataclass(frozen=True)
class DedupConfig:
    """How duplicates are found, and which copy stays: of documents, and of passages that recur within documents.

    Of several copies the one that passes the filters stays; of these one of a protected source; then the source that
    comes first in ``priority``; then the least id. Nothing else counts, so the result is the same for any order,
    sharding and number of workers.

    Attributes:
        priority: sources, the preferred one first; the others follow, all alike.
        protected: sources, such as a reference set, of which no document goes as a copy, and no repeated line or
            passage is cut.
        by_url: also remove documents of an address that a preferred document has, whatever their text is. For crawls,
            where an address is a page. Off by default, because in other sets all parts of a book or all answers of a
            thread may have one address, and an address does not prove that the text is there.
        fuzzy: also remove near copies, found through MinHash bands (see ``MinHashConfig``).
        containment: smallest share of a near copy's distinct n-grams that the kept document must have. Every near copy
            is checked against the text of the kept document before it is dropped.
        n_gram: words of an n-gram in that check.
        documents_per_task: documents whose keys one task holds. Tasks follow from it alone, not from workers.
        n_grams_per_task: n-grams that one task compares at a time.
        edges_in_memory: pairs of candidates that are connected in the memory of one task; more of them go through
            files.
    """

    priority: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    by_url: bool = False
    fuzzy: bool = True
    containment: float = 0.75
    n_gram: int = 3
    documents_per_task: int = runtime(250_000)
    n_grams_per_task: int = runtime(16_000_000)
    edges_in_memory: int = runtime(30_000_000)

    def __post_init__(self) -> None:
        if not 0.0 < self.containment <= 1.0:
            raise ValueError(f"DedupConfig.containment is {self.containment!r}; it must be above 0 and at most 1")
        for name in ("n_gram", "documents_per_task", "n_grams_per_task", "edges_in_memory"):
            if getattr(self, name) < 1:
                raise ValueError(f"DedupConfig.{name} is {getattr(self, name)!r}; it must be at least 1")
        if len(set(self.priority)) != len(self.priority):
            raise ValueError(f"DedupConfig.priority is {self.priority!r}; name every source once")

    def rank(self, source: str) -> int:
        """Where a source stands among all: the least is the most preferred, negative ones are protected."""
        place = self.priority.index(source) if source in self.priority else len(self.priority)
        return place - len(self.priority) - 1 if source in self.protected else place

    def inside(self, source: str) -> DedupConfig:
        """The same without what says nothing about this one source, so that another source does not change it."""
        return replace(self, priority=(), protected=(source,) if source in self.protected else ())

    def settings(self) -> dict[str, str]:
        """What has to be equal for verdicts to go together."""
        return {name: str(getattr(self, name)) for name in ("by_url", "fuzzy", "containment", "n_gram")}


@dataclass(frozen=True)
class DecontaminationConfig:
    """How overlap of training documents with evaluation items is found.

    13 words are what GPT-3 used (Brown et al. 2020, appendix C, https://arxiv.org/abs/2005.14165).

    Attributes:
        n_gram: words of an n-gram. An item with fewer words is looked for as a whole, and so is what an item asks (the
            first of its fields).
        shortest_item: an item with fewer words is not looked for, because it occurs everywhere; it is counted. Two
            characters of a script without spaces count as a word here.
        common_documents: an n-gram that occurs in more training documents than this is boilerplate, such as a licence,
            and no evidence.
        common_share: the same as a share of all training documents; the larger of the two limits holds.
        minimum_matches: distinct n-grams of one evaluation set that a document must share to count as contaminated.
        most_listed: evaluation items and spans that are written down for one document; columns say how many were left
            out. The report counts all of them.
    """

    n_gram: int = 13
    shortest_item: int = 5
    common_documents: int = 10
    common_share: float = 0.001
    minimum_matches: int = 1
    most_listed: int = 1000

    def __post_init__(self) -> None:
        for name in ("n_gram", "shortest_item", "common_documents", "minimum_matches", "most_listed"):
            if getattr(self, name) < 1:
                raise ValueError(f"DecontaminationConfig.{name} is {getattr(self, name)!r}; it must be at least 1")
        if not 0.0 <= self.common_share <= 1.0:
            raise ValueError(
                f"DecontaminationConfig.common_share is {self.common_share!r}; it must lie between 0 and 1"
            )

    @property
    def shortest_gram(self) -> int:
        """Words of the shortest n-gram or item that is looked for."""
        return min(self.shortest_item, self.n_gram)
