"""Which split a document belongs to: a function of its id alone."""

from __future__ import annotations

import hashlib
from typing import Literal

Split = Literal["train", "validation"]

_BUCKETS = 2**64


def split_of(document_id: str, share: float) -> Split:
    """``"validation"`` for a share of all ids, ``"train"`` for the rest.

    Depends on the id only, so it is the same in every step, for every sharding and in every run; a document that is in
    validation at one share stays there at every larger share.

    Args:
        document_id: id of the document.
        share: share of documents held out, 0 to 1.

    Raises:
        ValueError: share is not within 0 and 1.
    """
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"validation share is {share!r}; it must lie between 0 and 1")
    digest = hashlib.blake2b(document_id.encode(), digest_size=8, person=b"marin.split").digest()
    return "validation" if int.from_bytes(digest, "big") < share * _BUCKETS else "train"
