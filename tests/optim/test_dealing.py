"""Who orthogonalises what: every matrix once, by loads that are as even as its sizes allow; and what that moves."""

import itertools
import math

import pytest

from marin.model.config import ModelConfig
from marin.optim.dealing import Matrix, Round, chunk, deal, split


def layer(width: int, latent: int, shared: int, ranks: int) -> list[Matrix]:
    """The divided matrices of a block: attention, latent, two shared experts, and a norm's gates."""
    shapes = [
        *((width, width, 1), (width // 4, width, 1), (width // 4, width, 1), (width, width, 1)),
        *((latent, width, 1), (width, latent, 1), (4 * shared, width, 4), (2 * width, shared, 2)),
        *((128, width, 1), (width, 128, 1)),
    ]
    return [
        matrix
        for number, (rows, columns, stacked) in enumerate(shapes)
        for matrix in split(number, 1, rows, columns, stacked, ranks)
    ]


@pytest.mark.parametrize(("rows", "ranks"), [(7, 2), (1, 4), (3, 4), (8, 4), (9, 4), (5, 8)])
def test_chunks_are_those_of_torch(rows: int, ranks: int):
    torch = pytest.importorskip("torch")
    found = [chunk(rows, rank, ranks) for rank in range(ranks)]
    sizes = [len(part) for part in torch.arange(rows).chunk(ranks)]
    assert [stop - start for start, stop in found] == sizes + [0] * (ranks - len(sizes))
    assert all(stop == start for (_, stop), (start, _) in itertools.pairwise(found))


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7, 16])
@pytest.mark.parametrize(("slabs", "rows", "stacked"), [(1, 12, 1), (1, 12, 4), (3, 10, 2), (1, 5, 5)])
def test_the_parts_of_a_matrix_are_its_rows_once(slabs: int, rows: int, stacked: int, ranks: int):
    matrices = split(0, slabs, rows, 6, stacked, ranks)
    assert len(matrices) == slabs * stacked
    for matrix in matrices:
        held = [row for start, stop in matrix.held for row in range(start, stop)]
        assert held == list(range(matrix.first_row, matrix.first_row + matrix.rows))
        assert sum(matrix.elements(rank) for rank in range(ranks)) == matrix.rows * matrix.columns
        for rank, (start, stop) in enumerate(matrix.held):
            first, last = chunk(rows, rank, ranks)
            assert start == stop or (first <= start and stop <= last)


@pytest.mark.parametrize("ranks", [1, 2, 4, 7])
def test_every_matrix_has_one_owner_and_loads_are_even(ranks: int):
    matrices = [matrix for _ in range(3) for matrix in layer(1024, 512, 512, ranks)]
    rounds = deal(matrices, ranks)
    owned = [[m for turn in rounds for m in turn.owned[rank]] for rank in range(ranks)]
    assert sorted(map(id, (m for mine in owned for m in mine))) == sorted(map(id, matrices))
    loads = [sum(m.cost for m in mine) for mine in owned]
    # The bound of this rule: the mean and one more matrix.
    assert max(loads) <= sum(loads) / ranks + max(m.cost for m in matrices)
    assert max(loads) < 1.25 * sum(loads) / ranks


def test_rounds_bound_what_an_owner_holds_and_equal_shapes_stand_together():
    matrices = [matrix for _ in range(4) for matrix in layer(256, 128, 128, 4)]
    limit = 3 * 256 * 256
    rounds = deal(matrices, 4, limit)
    assert len(rounds) > 1
    for turn in rounds:
        assert all(sum(m.rows * m.columns for m in owned) <= limit for owned in turn.owned)
    for rank in range(4):
        shapes = [m.shape for turn in rounds for m in turn.owned[rank]]
        assert shapes == sorted(shapes)
    # A matrix above the limit is a round of its own.
    assert max(len(owned) for turn in deal(matrices, 4, 1) for owned in turn.owned) == 1
    with pytest.raises(ValueError, match="round_elements is 0"):
        deal(matrices, 4, 0)


def test_nothing_is_dealt_without_matrices():
    assert deal([], 4) == ()
    assert split(0, 0, 4, 4, 1, 2) == []


def test_moved_elements_are_all_but_the_owners_own():
    matrix = Matrix(0, 0, 0, 8, 3, ((0, 4), (4, 8), (8, 8)))
    assert [
        Round(tuple((matrix,) if rank == owner else () for rank in range(3))).moved_elements() for owner in (0, 2)
    ] == [
        12,
        24,
    ]


def test_the_hero_moves_a_hundredth_of_what_gathering_would():
    hero, ranks = ModelConfig.rung("hero"), 64
    matrices = layer(hero.width, hero.latent_width, hero.shared_width, ranks)
    rounds = deal(matrices * hero.layers, ranks)
    elements = sum(m.rows * m.columns for m in matrices) * hero.layers
    moved = sum(turn.moved_elements() for turn in rounds)
    # To the owner, and back: (n - 1)/n each.
    assert moved == pytest.approx(elements * (ranks - 1) / ranks, rel=1e-3)
    gathered = 2 * (ranks - 1) * elements
    assert 2 * moved / gathered == pytest.approx(1 / ranks, rel=1e-3)
    loads = [sum(m.cost for turn in rounds for m in turn.owned[rank]) for rank in range(ranks)]
    assert max(loads) < 1.1 * math.fsum(loads) / ranks
