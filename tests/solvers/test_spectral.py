import pytest

from ipot.solvers import spectral


@pytest.mark.parametrize("points", [12, 16, 17, 64])
def test_products_of_resolved_modes_do_not_alias_onto_resolved_modes(points):
    k = spectral.wavenumbers(points)
    kept = k[spectral.resolved(k, points)]
    assert len(kept) >= 2 * (points // 3) - 1
    sums = kept[:, None] + kept
    wrapped = (sums + points / 2) % points - points / 2
    aliased = wrapped[wrapped != sums]
    assert not spectral.resolved(aliased, points).any()
