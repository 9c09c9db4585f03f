"""The ring solver against a dense one."""

import pytest
import torch

from ipot.solvers import cyclic

UNKNOWNS = 4


def random_sectors(batch, sectors):
    random = torch.Generator().manual_seed(sectors)
    m = 3 * UNKNOWNS
    half = torch.randn(batch, sectors, m, m, generator=random, dtype=torch.float64)
    return half @ half.mT + 0.1 * torch.eye(m, dtype=torch.float64)


def dense(sectors):
    """The matrix of the whole ring: every sector's three lines, wrapped around."""
    batch, count, m, _ = sectors.shape
    n = m // 3
    lines = 2 * count
    matrix = sectors.new_zeros(batch, lines * n, lines * n)
    for sector in range(count):
        where = [
            ((2 * sector + line) % lines) * n + unknown for line in range(3) for unknown in range(n)
        ]
        for row, i in enumerate(where):
            for column, j in enumerate(where):
                matrix[:, i, j] += sectors[:, sector, row, column]
    return matrix


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 9, 12])
def test_agrees_with_a_dense_solve(count):
    sectors = random_sectors(2, count)
    right = torch.arange(2 * 2 * count * UNKNOWNS).double().sin().view(2, 2 * count, UNKNOWNS)
    found = cyclic.factorize(sectors).solve(right)
    expected = torch.linalg.solve(dense(sectors), right.flatten(1)).view_as(right)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10 * expected.abs().max().item())


def test_a_factor_serves_many_right_hand_sides():
    sectors = random_sectors(1, 6)
    factor = cyclic.factorize(sectors)
    matrix = dense(sectors)
    for shift in range(3):
        right = torch.arange(12 * UNKNOWNS).double().add(shift).cos().view(1, 12, UNKNOWNS)
        again = (matrix @ factor.solve(right).flatten(1).unsqueeze(-1)).view_as(right)
        torch.testing.assert_close(again, right, rtol=0, atol=1e-9)


def test_every_halving_halves_the_lines():
    factor = cyclic.factorize(random_sectors(1, 36))
    assert [len(chol[0]) for chol, _ in factor.levels] == [36, 18, 9, 4, 2, 1, 1]


def test_a_matrix_that_is_not_definite_shows_in_the_residual():
    sectors = random_sectors(2, 4)
    sectors[1] *= -1
    right = torch.ones(2, 8, UNKNOWNS, dtype=torch.float64)
    found = cyclic.factorize(sectors).solve(right)
    residual = (dense(sectors) @ found.flatten(1).unsqueeze(-1)).squeeze(-1) - 1
    assert residual[0].norm() < 1e-9
    assert not residual[1].norm() < 1e-3
