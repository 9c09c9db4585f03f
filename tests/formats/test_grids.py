"""Grids in arrays with names of their own, where there are as many cases as a side has nodes."""

import numpy as np
import pytest

from ipot.errors import DataError
from ipot.formats.named_arrays import named_cases

random = np.random.default_rng(0)


def nodes(*sizes, indexing="ij"):
    return np.meshgrid(*(np.linspace(0, 1, n) for n in sizes), indexing=indexing)


def read(**arrays):
    return named_cases(arrays, "a.npz", "arrays")


def check(found, count, points, field):
    """As many cases, each at these points with its own part of a field."""
    assert len(found) == count
    for i in range(count):
        np.testing.assert_array_equal(found[i].points, points)
        np.testing.assert_array_equal(found[i].fields["u"], field[i].ravel())


@pytest.mark.parametrize("cases", [3, 4, 5, 9])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("side", [4, 5])
def test_places_on_a_grid_are_no_places_of_cases(cases, whole, side):
    """(H, W, 2), or x and y (H, W), with fields (cases, H, W): also where all three are alike."""
    x, y = nodes(4, side)
    u = random.random((cases, 4, side))
    given = {"points": np.stack([x, y], -1)} if whole else {"x": x, "y": y}
    check(read(**given, u=u), cases, np.stack([x.ravel(), y.ravel()], 1), u)


@pytest.mark.parametrize("whole", [True, False])
def test_curved_grids_are_known_by_their_fields(whole):
    x, y = nodes(4, 4)
    bent = x + 0.1 * y, y + 0.2 * x**2
    given = {"points": np.stack(bent, -1)} if whole else {"x": bent[0], "y": bent[1]}
    u = random.random((7, 4, 4))
    check(read(**given, u=u), 7, np.stack([b.ravel() for b in bent], 1), u)
    with pytest.raises(DataError, match=r"4 cases or a grid of 4 x 4.*\(4, 4, 4\), which fits"):
        read(**given, u=u[:4])
    # Another array tells, in either way.
    more = read(**given, u=u[:4], v=random.random((4, 4, 4, 2)))
    check(more, 4, np.stack([b.ravel() for b in bent], 1), u)
    rows = read(**given, u=u[0])
    assert (len(rows), rows[1].fields["u"].shape) == (4, (4,))


def test_axes_in_either_order_where_cases_are_as_many():
    x, y = np.linspace(0, 1, 12), np.linspace(0, 2, 7)
    u = random.random((12, 7, 12))  # (cases, y, x), and not (x, y, components)
    points = np.stack([n.ravel() for n in np.meshgrid(x, y)], 1)
    check(read(x=x, y=y, u=u), 12, points, u)
    few = random.random((5, 7, 5))
    with pytest.raises(DataError, match=r"shape \(5, 7, 5\) can be on a grid \(x, y\) or \(y, x\)"):
        read(x=x[:5], y=y, u=few)
    points = np.stack([n.ravel() for n in np.meshgrid(x[:5], y)], 1)
    more = read(x=x[:5], y=y, u=few, v=random.random((5, 7, 5, 2)))
    check(more, 5, points, few)
