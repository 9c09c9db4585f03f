"""Points spread over a box or a sphere."""

import pytest
import torch

from ipot.nn.points import spread


@pytest.mark.parametrize("domain", [((0.0, 1.0),), ((-2.0, 1.0), (5.0, 6.0)), ((0.0, 1.0),) * 3])
def test_a_box_is_filled_evenly(domain):
    places = spread(512, domain)
    assert places.shape == (512, len(domain))
    low, high = torch.tensor(domain, dtype=torch.float64).T
    unit = (places - low) / (high - low)
    assert ((unit >= 0) & (unit < 1)).all()
    # Each half of each axis, and each quarter where two axes cross, has its share.
    halves = (unit < 0.5).double()
    assert (halves.mean(0) - 0.5).abs().max() < 0.01
    if len(domain) > 1:
        assert abs((halves[:, 0] * halves[:, 1]).mean().item() - 0.25) < 0.015
    assert torch.cdist(unit, unit).fill_diagonal_(9).min() > 0.3 * 512 ** (-1 / len(domain))


def test_a_sphere_is_filled_evenly():
    places = spread(500, ((-1.0, 1.0),) * 3, sphere=True)
    torch.testing.assert_close(places.norm(dim=-1), torch.ones(500, dtype=torch.float64))
    assert places.mean(0).abs().max() < 0.01
    second = places.T @ places / 500
    torch.testing.assert_close(second, torch.eye(3).double() / 3, atol=0.01, rtol=0)
    nearest = torch.cdist(places, places).fill_diagonal_(9).amin(1)
    assert nearest.min() > 0.7 * nearest.max()
