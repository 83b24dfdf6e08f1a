"""What the comparison of the two judges comes to."""

from __future__ import annotations

from dataclasses import dataclass

from marin.execution import Artifact

AGREEMENT_FILE = "agreement.json"


@dataclass(frozen=True, kw_only=True)
class Agreement(Artifact):
    """How often the fast judge and datatrove's filters decide the same.

    File: ``agreement.json``, the same numbers with the reasons and ids of documents on which they differ.

    Attributes:
        documents: documents compared.
        equal: documents that both keep or both drop.
        only_fast_keeps: documents that datatrove alone drops.
        only_reference_keeps: documents that the fast judge alone drops.
    """

    documents: int
    equal: int
    only_fast_keeps: int
    only_reference_keeps: int

    @property
    def rate(self) -> float:
        """Share of documents with equal decisions; 1 for none."""
        return self.equal / self.documents if self.documents else 1.0
