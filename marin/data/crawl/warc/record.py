"""One record of a WARC file, as it is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MAX_BLOCK = 256 * 1024**2
"""A longer record block is passed over and counted, so that memory stays bounded."""

Fault = Literal["damaged", "truncated", "block_too_large"]


@dataclass(frozen=True, slots=True)
class RawRecord:
    """One record: its WARC headers (names in lower case) and its block, or why the block is not there."""

    offset: int
    headers: dict[str, str]
    block: bytes
    fault: Fault | None = None

    @property
    def kind(self) -> str:
        """WARC-Type, in lower case."""
        return self.headers.get("warc-type", "unknown").lower()
