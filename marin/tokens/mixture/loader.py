"""The loader of a run: any batch of it, at any time, on any rank, without reading what comes before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from marin.execution import StepError
from marin.tokens.mixture.artifacts import Mixture
from marin.tokens.mixture.draws import Component
from marin.tokens.mixture.order import MixtureOrder
from marin.tokens.mixture.packing import Batch, pack, packed_batches
from marin.tokens.mixture.report import order_phases
from marin.tokens.mixture.sequences import sequences_of
from marin.tokens.shards.reading import OpenShards, document_ids
from marin.tokens.shards.streaming import BlockCache

__all__ = ["Batch", "MixtureLoader", "packed_batches"]


class MixtureLoader:
    """Sequences of a mixture in the order of a run.

    Sequence k depends on (mixture, sequence length, seed, total_sequences, k) alone. Rank r of n takes, at step s of
    global batch B, ``batch(s * B + r * B // n, B // n)``; the state of a run is the one integer s * B. Shards are
    memory-mapped and opened when they are first read, so the loader pickles and starts at once.

    Args:
        mixture: a materialised mixture.
        sequence_length: places of a sequence (S).
        seed: seed of the order within each component.
        total_sequences: sequences of the whole run; the phases are shares of it.
        cache: where blocks of shards in an object store are kept; without one such shards are downloaded whole.

    Raises:
        StepError: a component holds no sequence, or the run needs more epochs than ``exhausted="stop"`` allows.
    """

    def __init__(
        self, mixture: Mixture, sequence_length: int, seed: int, total_sequences: int, cache: BlockCache | None = None
    ) -> None:
        if sequence_length < 1:
            raise ValueError(f"sequence_length is {sequence_length}; it must be at least 1")
        self.mixture = mixture
        self.sequence_length = sequence_length
        self.total_sequences = total_sequences
        self.seed = seed
        self.names = tuple(sorted(mixture.components))
        self.cache = cache
        opened = OpenShards(cache)
        self._readers = [
            sequences_of(mixture.components[name], sequence_length, mixture.tail, opened) for name in self.names
        ]
        components = [
            Component(name, reader.count, reader.parts) for name, reader in zip(self.names, self._readers, strict=True)
        ]
        self.fraction = 1.0
        if mixture.simulate_budget and mixture.budget_tokens is not None:
            self.fraction = min(1.0, total_sequences * sequence_length / mixture.budget_tokens)
        try:
            self.order = MixtureOrder(
                components,
                order_phases(mixture.phases, self.names),
                total_sequences,
                seed,
                bands=mixture.difficulty_bands,
                fraction=self.fraction,
            )
        except ValueError as error:
            raise StepError(str(error)) from error
        if mixture.exhausted == "stop":
            self._refuse_exhaustion(mixture.max_epochs or 1.0)

    def __reduce__(self) -> tuple[Any, ...]:
        return MixtureLoader, (self.mixture, self.sequence_length, self.seed, self.total_sequences, self.cache)

    def batch(self, first: int, count: int) -> Batch:
        """Sequences ``first`` to ``first + count - 1`` of the run.

        Raises:
            IndexError: they are not all within the run.
        """
        refs = self.order.lookup(first, count)
        reads = [
            (self._readers[component], sequence)
            for component, sequence in zip(refs.components.tolist(), refs.sequences.tolist(), strict=True)
        ]
        return pack(
            reads,
            self.sequence_length,
            self.mixture.pad_id,
            components=refs.components,
            epochs=refs.epochs,
            repeat_mask=self.mixture.repeat_mask,
        )

    def validation_batches(self, name: str, batch_size: int) -> Iterator[Batch]:
        """A validation cell in stored order, every token once.

        Raises:
            ValueError: the run draws from the cell, so it is none to validate on.
        """
        if name not in self.mixture.validation:
            cells = ", ".join(self.mixture.validation) or "none"
            raise ValueError(f"{name!r} is drawn by the run; validation cells are {cells}")
        return packed_batches(self.mixture.components[name], self.sequence_length, batch_size)

    def documents(self, place: int) -> list[str]:
        """Ids of the documents that have a token in the sequence at a place of the run, in their order."""
        refs = self.order.lookup(place, 1)
        component = int(refs.components[0])
        shards = self.mixture.components[self.names[component]]
        within = self._readers[component].documents(int(refs.sequences[0]))
        ids = {shard: document_ids(shards, shards.shards[shard]) for shard in {shard for shard, _ in within}}
        return [ids[shard][document] for shard, document in within]

    def epochs(self, place: int | None = None) -> dict[str, float]:
        """Epochs of each component, over the sequences that the run uses of it, before ``place`` (default: the end)."""
        counts = self.order.counts(self.total_sequences if place is None else place)
        return {name: float(c / size) for name, c, size in zip(self.names, counts, self.order.sizes, strict=True)}

    def dropped_tokens(self) -> dict[str, int]:
        """Tokens of each component that no sequence holds: what its packing cuts off, or a dropped tail."""
        return {name: reader.dropped_tokens for name, reader in zip(self.names, self._readers, strict=True)}

    def report(self) -> dict[str, Any]:
        """Realised against asked shares by phase, sequences and epochs by component, over the whole run."""
        bounds = (0, *self.order.ends)
        counts = [self.order.counts(bound) for bound in bounds]
        epochs = self.epochs()
        return {
            "sequence_length": self.sequence_length,
            "total_sequences": self.total_sequences,
            "simulated_fraction": self.fraction,
            "phases": [
                {"name": phase.name, "first": begin, "end": end}
                for phase, begin, end in zip(self.mixture.phases, bounds, bounds[1:], strict=False)
            ],
            "components": [
                {
                    "name": name,
                    "sequences": self._readers[index].count,
                    "used_sequences": int(self.order.sizes[index]),
                    "dropped_tokens": self._readers[index].dropped_tokens,
                    "padded_places": self._readers[index].padded_places,
                    "drawn": int(counts[-1][index]),
                    "epochs": epochs[name],
                    "asked": [phase.weights[name] for phase in self.mixture.phases],
                    "realised": [
                        float(np.divide(after[index] - before[index], max(1, end - begin)))
                        for before, after, begin, end in zip(counts, counts[1:], bounds, bounds[1:], strict=False)
                    ],
                }
                for index, name in enumerate(self.names)
            ],
        }

    def _refuse_exhaustion(self, limit: float) -> None:
        over = {name: epochs for name, epochs in self.epochs().items() if epochs > limit}
        if over:
            told = ", ".join(f"{name} {epochs:.2f}" for name, epochs in sorted(over.items()))
            raise StepError(
                f"the run needs more than {limit:g} epochs of these components: {told}; shorten the run, lower their "
                "weights, or set mixture.exhausted to 'repeat'"
            )
