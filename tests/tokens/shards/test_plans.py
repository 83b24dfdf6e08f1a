from __future__ import annotations

import itertools

import numpy as np
import pytest

from marin.tokens.shards.config import PackingConfig
from marin.tokens.shards.plans import (
    NEIGHBOURHOOD,
    CorruptPlan,
    PackingPlan,
    PlannedSpans,
    chunk_bounds,
    plan_packing,
)


def documents(seed: int, count: int, mean: float = 6.0) -> np.ndarray:
    return np.random.default_rng(seed).lognormal(mean, 1.2, count).astype(np.int64) + 1


def spans_of(lengths, policy: str, length: int) -> tuple[PackingPlan, list[list[tuple[int, int]]], int, int]:
    plan, losses = plan_packing(lengths, policy, length)
    again = PackingPlan.from_bytes(plan.to_bytes(), "x.plan")
    spans = PlannedSpans(again, lengths)
    return again, [spans.spans(index) for index in range(again.sequences)], losses.dropped_tokens, losses.padded_places


def plainly_truncated(lengths, length: int) -> tuple[list[tuple[int, int]], int]:
    """Sequences and dropped tokens, document by document."""
    sequences, dropped, place = [], 0, 0
    begin, room = 0, 0
    for size in lengths.tolist():
        if room == 0:
            begin, room = place, length
            sequences.append((begin, begin))
        taken = min(size, room)
        sequences[-1] = (begin, sequences[-1][1] + taken)
        room -= taken
        dropped += size - taken
        place += size
    return sequences, dropped


@pytest.mark.parametrize("length", [2, 16, 256])
@pytest.mark.parametrize("seed", range(3))
def test_truncation_is_that_of_a_plain_loop(seed: int, length: int):
    lengths = documents(seed, 400, 3.0)
    _, spans, dropped, padded = spans_of(lengths, "truncate", length)
    expected, lost = plainly_truncated(lengths, length)
    assert [span for (span,) in spans] == expected
    assert dropped == lost
    assert padded == len(spans) * length - (int(lengths.sum()) - lost)


@pytest.mark.parametrize("length", [2, 64, 4096])
@pytest.mark.parametrize("seed", range(3))
def test_best_fit_holds_every_token_once_and_cuts_only_what_is_longer_than_a_sequence(seed: int, length: int):
    lengths = documents(seed, 600)
    total = int(lengths.sum())
    _, spans, dropped, padded = spans_of(lengths, "best_fit", length)
    flat = sorted(span for held in spans for span in held)
    assert flat[0][0] == 0 and flat[-1][1] == total
    assert all(left[1] == right[0] for left, right in itertools.pairwise(flat))
    assert all(sum(end - begin for begin, end in held) <= length for held in spans)
    assert dropped == 0
    assert padded == len(spans) * length - total
    starts = np.concatenate([[0], np.cumsum(lengths)])
    begins = np.setdiff1d([begin for begin, _ in flat], starts)
    documents_cut = np.searchsorted(starts, begins, side="right") - 1
    assert (lengths[documents_cut] > length).all()
    assert ((begins - starts[documents_cut]) % length == 0).all()


@pytest.mark.parametrize("mean", [3.0, 5.0, 6.5, 8.0])
def test_a_plan_takes_less_than_a_hundredth_of_the_bytes_of_its_tokens_and_little_is_padded(mean: float):
    lengths = documents(0, int(4e6 / np.exp(mean + 0.7)), mean)
    for policy, most in (("truncate", 0.001), ("best_fit", 0.01)):
        plan, _, _, padded = spans_of(lengths, policy, 4096)
        assert len(plan.to_bytes()) <= most * 2 * int(lengths.sum())  # two bytes a token at least
        assert padded <= 0.02 * int(lengths.sum())


def test_lengths_that_make_the_most_chunks_stay_below_a_hundredth_too():
    grid = 4096 // 8
    for pattern in ([grid, 1], [grid - 1, grid], [4097], [1], [grid - 1, 1, grid - 1], [2049]):
        lengths = np.array(pattern * (2_000_000 // sum(pattern)))
        plan, _, _, _ = spans_of(lengths, "best_fit", 4096)
        assert len(plan.to_bytes()) <= 0.01 * 2 * int(lengths.sum()), pattern


def test_best_fit_is_as_good_as_it_can_be_on_halves_and_thirds():
    _, spans, _, padded = spans_of(np.array([50, 60, 40, 50, 30, 30, 40]), "best_fit", 100)
    assert (len(spans), padded) == (3, 0)


def test_a_sequence_is_read_from_nearby_and_sequences_follow_the_documents():
    lengths = documents(1, 40_000, 4.0)
    _, spans, _, _ = spans_of(lengths, "best_fit", 64)
    firsts = [min(begin for begin, _ in held) for held in spans]
    reach = max(max(end for _, end in held) - min(begin for begin, _ in held) for held in spans)
    assert reach <= (NEIGHBOURHOOD + 1) * 64
    assert np.abs(np.argsort(np.argsort(firsts, kind="stable")) - np.arange(len(firsts))).max() <= 2 * NEIGHBOURHOOD


@pytest.mark.parametrize("policy", ["truncate", "best_fit"])
def test_shards_without_documents_and_with_empty_ones_have_plans(policy: str):
    assert spans_of(np.array([], dtype=np.int64), policy, 8)[1:] == ([], 0, 0)
    _, spans, dropped, _ = spans_of(np.array([0, 3, 0, 0, 9, 0]), policy, 8)
    held = sum(end - begin for sequence in spans for begin, end in sequence)
    assert held + dropped == 12


def test_chunks_glue_short_neighbours_only():
    assert chunk_bounds(np.array([3, 4, 2, 70, 5, 90, 1]), 64).tolist() == [0, 9, 73, 79, 84, 148, 174, 175]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda data: data[:10], "10 bytes, too few"),
        (lambda data: b"X" + data[1:], "not a packing plan"),
        (lambda data: data[:-4], "was cut or damaged"),
        (lambda data: data + b"1234", "was cut or damaged"),
    ],
)
def test_a_damaged_plan_is_named(change, text: str):
    plan, _ = plan_packing(documents(0, 50), "best_fit", 64)
    with pytest.raises(CorruptPlan, match=f"some.plan .*{text}"):
        PackingPlan.from_bytes(change(plan.to_bytes()), "some.plan")


@pytest.mark.parametrize("policy", ["truncate", "best_fit"])
def test_a_plan_of_other_documents_is_refused(policy: str):
    plan, _ = plan_packing(documents(0, 50), policy, 64)
    with pytest.raises(CorruptPlan, match="the packing plan is of"):
        PlannedSpans(plan, documents(1, 60))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("first_fit", 64), "policy is 'first_fit'"),
        (("best_fit", None), "sequence_length is None with policy 'best_fit'"),
        (("carry_on", 64), "sequence_length is 64 with policy 'carry_on'"),
        (("truncate", 1), "sequence_length is 1; give at least 2"),
    ],
)
def test_impossible_packing_is_refused_when_it_is_read(arguments: tuple[str, int | None], text: str):
    with pytest.raises(ValueError, match=text):
        PackingConfig(*arguments)
