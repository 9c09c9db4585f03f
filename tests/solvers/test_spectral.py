import pytest
import torch

from ipot.solvers import spectral


@pytest.mark.parametrize("points", [8, 13])
def test_sine_matrix_diagonalises_the_cell_centred_laplacian(points):
    laplacian = 2 * torch.eye(points) - torch.diag(torch.ones(points - 1), 1)
    laplacian -= torch.diag(torch.ones(points - 1), -1)
    laplacian[0, 0] = laplacian[-1, -1] = 3  # the wall is half a cell away
    basis = spectral.sine_matrix(points)
    eigenvalue = 4 * torch.sin(torch.pi * torch.arange(1, points + 1).double() / (2 * points)) ** 2
    torch.testing.assert_close(basis.mT @ basis, torch.eye(points).double())
    torch.testing.assert_close(basis.mT @ laplacian.double() @ basis, torch.diag(eigenvalue))


@pytest.mark.parametrize("points", [8, 13])
def test_cosine_matrix_is_orthonormal(points):
    basis = spectral.cosine_matrix(points, points)
    torch.testing.assert_close(basis.mT @ basis, points * torch.eye(points).double())


@pytest.mark.parametrize("points", [12, 16, 17, 64])
def test_products_of_resolved_modes_do_not_alias_onto_resolved_modes(points):
    k = spectral.wavenumbers(points)
    kept = k[spectral.resolved(k, points)]
    assert len(kept) >= 2 * (points // 3) - 1
    sums = kept[:, None] + kept
    wrapped = (sums + points / 2) % points - points / 2
    aliased = wrapped[wrapped != sums]
    assert not spectral.resolved(aliased, points).any()
