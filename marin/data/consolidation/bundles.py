"""What one task writes: shards of one source, so that small ones do not give small files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from marin.data.consolidation.config import Policy
from marin.data.consolidation.places import Place
from marin.execution import Intermediate

ROW_GROUP_BYTES = 16 * 1024**2
"""A worker holds up to one row group of every cell."""

_BUNDLE_BYTES = 128 * 1024**2


@dataclass(frozen=True)
class Part:
    """One shard of pages, with the file of the verdicts on it."""

    place: Place
    verdicts: Intermediate


@dataclass(frozen=True)
class Bundle:
    """Shards of one source that are written together. Pickles.

    Attributes:
        number: number of the bundle.
        source: the source.
        parts: the shards.
        heirs: file with the numbers of its documents that take the place of a dropped one; None without any.
        gone: file with the ids whose copies are taken down; None without any.
        left: file with the repeated passages of its documents that stay in their places; None without any.
        validation_share: share of documents that is held out.
        policy: the policy.
    """

    number: int
    source: str
    parts: tuple[Part, ...]
    heirs: Intermediate | None
    gone: Intermediate | None
    validation_share: float
    policy: Policy
    left: Intermediate | None = None

    @property
    def rows(self) -> int:
        """Number of documents that come in."""
        return sum(part.place.shard.rows for part in self.parts)


def bundled(parts: Sequence[Part], cells: int) -> Iterator[tuple[str, tuple[Part, ...]]]:
    """The parts of each source in bundles of about equal size, large enough for a whole file of each cell.

    Args:
        parts: all parts, in order.
        cells: number of cells that there are.
    """
    enough = max(_BUNDLE_BYTES, cells * ROW_GROUP_BYTES)
    by_source: dict[str, list[Part]] = defaultdict(list)
    for part in parts:
        by_source[part.place.shard.source].append(part)
    for source, of_source in sorted(by_source.items()):
        chosen: list[Part] = []
        filled = 0
        for part in of_source:
            chosen.append(part)
            filled += part.place.shard.text_bytes
            if filled >= enough:
                yield source, tuple(chosen)
                chosen, filled = [], 0
        if chosen:
            yield source, tuple(chosen)


def cell_stem(source: str, split: str, topic: int, quality: int, bundle: int) -> str:
    """How the names begin of the files that hold one cell of a bundle."""
    return f"{split}/{quote(source, safe='')}/c{topic:02d}q{quality}/{bundle:05d}"
