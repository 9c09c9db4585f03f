"""What a view hides, interpolated from what it shows."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.interpolate import griddata

from ipot.data import fill as module
from ipot.data import views
from ipot.data.dataset import Ragged, Stacked
from ipot.data.fill import METHODS, fill, filled
from ipot.errors import DataError, UnknownName, Unsupported
from ipot.samples import collate
from ipot.spec import Spec

TAU = 2 * torch.pi


def facts(d=2, **fields):
    made = {"name": "toy", "inputs": ("a",), "outputs": ("u",), "domain": ((0.0, 1.0),) * d}
    return Spec(**made | fields)


def cloud(count=200, d=2, seed=0):
    return torch.rand(count, d, generator=torch.Generator().manual_seed(seed)).double()


def slope(points):
    """A linear function of the coordinates, in two channels."""
    plane = 1.0 + (points * torch.arange(1, points.shape[-1] + 1)).sum(-1, keepdim=True)
    return torch.cat([plane, 3 - 2 * plane], -1)


def around(points, corners):
    """The corners of the unit box in front of some points: all points then lie in their hull."""
    box = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * corners)
    return torch.cat([box.reshape(-1, corners), points])


@pytest.fixture
def grid(make_sample):
    """Three samples on one periodic grid, 8 x 8."""
    line = torch.arange(8) / 8
    mesh = torch.cartesian_prod(line, line)
    fixed = {"points": mesh, "queries": mesh, "grid": (8, 8), "query_grid": (8, 8)}
    return Stacked(collate([make_sample(64, 64, c=2, seed=i, **fixed) for i in range(3)]))


@pytest.fixture
def ragged(make_sample):
    edges = torch.tensor([[0, 1], [1, 2]])
    return Ragged([make_sample(n, c=2, edges=edges, seed=n) for n in (30, 40, 25)])


def half(data):
    return views.keep(data, 0.5)


def left(data):
    return views.mask(data, "left", facts())


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("method", ["linear", "cubic"])
def test_a_linear_function_is_reproduced_inside_the_hull(d, method):
    if method == "cubic" and d == 3:
        pytest.skip("refused")
    points = around(cloud(d=d), d)
    values = slope(points).expand(3, -1, -1) * torch.tensor([1.0, 2.0, -5.0]).view(3, 1, 1)
    seen = torch.arange(2**d + 60)
    poisoned = values.clone()
    poisoned[:, len(seen) :] = 1e9
    found = filled(points, poisoned, seen, facts(d), method)
    torch.testing.assert_close(found, values, atol=1e-5 if method == "cubic" else 1e-12, rtol=0)


def test_a_cubic_is_closer_than_a_line_and_both_beat_the_nearest():
    points = cloud(400)
    values = torch.sin(3 * points.sum(-1)).view(1, -1, 1)
    # At the border triangles are long and thin, and nothing is accurate.
    inside = ((points - 0.5).abs() < 0.35).all(-1)
    errors = [
        (filled(points, values, torch.arange(150), facts(), m) - values)[:, inside].norm().item()
        for m in ("cubic", "linear", "nearest")
    ]
    assert 0 < 3 * errors[0] < errors[1] < errors[2] / 3


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["grid", "ragged"])
@pytest.mark.parametrize("view", [half, left])
def test_seen_points_keep_their_bits_and_the_rest_is_restored(kind, method, view, request):
    data = request.getfixturevalue(kind)
    spec = facts(inputs=("a", "b"))
    whole, shown = fill(data, view, spec, method), view(data)
    for i in range(len(data)):
        before, after = data[i], whole[i]
        assert torch.equal(after.points, before.points)
        assert torch.equal(after.targets, before.targets)
        assert (after.grid, after.query_grid) == (before.grid, before.query_grid)
        assert (after.edges is None) == (before.edges is None)
        assert after.values.dtype == before.values.dtype
        rows = {tuple(p): v for p, v in zip(after.points.tolist(), after.values, strict=True)}
        assert 0 < len(shown[i].points) < len(rows)
        for point, value in zip(shown[i].points.tolist(), shown[i].values, strict=True):
            assert torch.equal(rows[tuple(point)], value)
        assert not torch.equal(after.values, before.values)
    assert type(whole) is type(data)
    if kind == "grid":
        assert whole.batch(torch.arange(3)).points.shape[0] == 1


def test_what_is_hidden_has_no_influence(grid):
    spec = facts(inputs=("a", "b"), periods=(1.0, 1.0))
    hidden = grid.data.points[0, :, 0] > 0.5
    other = grid.data.values.clone()
    other[:, hidden] = 77.0
    changed = Stacked(replace(grid.data, values=other))
    for method in METHODS:
        one, two = fill(grid, left, spec, method), fill(changed, left, spec, method)
        assert torch.equal(one.data.values, two.data.values)


def test_it_agrees_with_griddata_and_is_the_nearest_outside():
    points = cloud(300)
    values = torch.cos(5 * points[:, :1]) * points[:, 1:]
    seen = (points - 0.5).norm(dim=-1) < 0.4
    index = seen.nonzero().squeeze(-1)
    for method in METHODS:
        found = filled(points, values.unsqueeze(0), index, facts(), method)[0, ~seen]
        known = (points[seen].numpy(), values[seen].numpy(), points[~seen].numpy())
        expected = griddata(*known, method=method)
        outside = np.isnan(expected)
        expected = np.where(outside, griddata(*known, method="nearest"), expected)
        assert outside.any() == (method != "nearest")
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-9)


def test_a_period_is_crossed():
    """A gap around 0 of a circle is closed from both of its sides."""
    x = (torch.arange(40, dtype=torch.float64) / 40).unsqueeze(-1)
    values = torch.cos(TAU * x).unsqueeze(0)
    seen = ((x > 0.08) & (x < 0.92)).nonzero()[:, 0]
    around_zero = [0, 1, 39]
    circle, line = facts(1, periods=(1.0,)), facts(1)
    wrapped = filled(x, values, seen, circle, "cubic")[0, around_zero]
    torch.testing.assert_close(wrapped, values[0, around_zero], atol=2e-2, rtol=0)
    assert (filled(x, values, seen, line, "cubic")[0, 0] - 1).abs() > 0.1  # the end, not the middle
    straight = filled(x, values, seen, circle, "linear")[0, around_zero]
    ends = values[0, [4, 36]].flatten()
    assert (straight <= ends.max() + 1e-12).all()


def test_the_nearest_point_may_lie_across_the_border():
    points = torch.tensor([[0.5, 0.02], [0.5, 0.6], [0.5, 0.98]], dtype=torch.float64)
    values = torch.tensor([1.0, 2.0, 9.0]).view(1, 3, 1)
    seen = torch.tensor([0, 1])
    assert filled(points, values, seen, facts(periods=(None, 1.0)), "nearest")[0, 2] == 1
    assert filled(points, values, seen, facts(), "nearest")[0, 2] == 2


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("periods", [(None, None), (1.0, None), (1.0, 1.0)])
def test_a_constant_stays_constant(method, periods):
    points = cloud(120)
    values = torch.full((2, 120, 1), 288.15)
    found = filled(points, values, torch.arange(30), facts(periods=periods), method)
    torch.testing.assert_close(found, values, atol=1e-4, rtol=0)


def globe(rows=12):
    """Latitudes and longitudes of a grid of cell centres, in radians."""
    north = (torch.arange(rows, dtype=torch.float64) + 0.5) / rows * torch.pi - torch.pi / 2
    east = torch.arange(2 * rows, dtype=torch.float64) / rows * torch.pi
    return torch.cartesian_prod(north, east)


def vectors(angles):
    lat, lon = angles.unbind(-1)
    return torch.stack([lat.cos() * lon.cos(), lat.cos() * lon.sin(), lat.sin()], -1)


@pytest.mark.parametrize("method", METHODS)
def test_on_a_sphere_unit_vectors_and_angles_agree(method):
    angles = globe()
    values = (vectors(angles) @ torch.tensor([[1.0], [2.0], [-1.0]]).double()).unsqueeze(0)
    # Hidden: a belt around longitude zero, where vectors have no border and angles have one.
    lon = (angles[:, 1] + torch.pi) % TAU - torch.pi
    hidden = (lon.abs() < 0.7) & (angles[:, 0].abs() < 1)
    seen = (~hidden).nonzero()[:, 0]
    ball = facts(3, domain=((-1.0, 1.0),) * 3, sphere=True)
    map_ = facts(2, domain=((-0.5, 0.5), (0.0, 2.0)), periods=(None, 2.0), latlon=True)
    one = filled(vectors(angles), values, seen, ball, method)
    two = filled(angles / torch.pi, values, seen, map_, method)
    if method != "nearest":
        # A square is cut along either diagonal by the last bit, which a cubic feels.
        torch.testing.assert_close(one, two, atol=1e-6 if method == "linear" else 0.05, rtol=0)
        bound = {"linear": 0.4, "cubic": 0.2}[method]
        assert (one - values).abs().max() < bound
        return
    close = vectors(angles)[hidden] @ vectors(angles)[seen].T
    for found in (one, two):
        for row, value in zip(close, found[0, hidden, 0], strict=True):
            nearest = row > row.max() - 1e-9
            assert value in values[0, seen, 0][nearest]


def test_beyond_the_last_row_the_nearest_is_that_of_the_sphere():
    """At the pole the longitude means nothing: the one point near it is near from all around."""
    angles = torch.tensor([[1.5, 0.1], [1.0, 3.0], [0.0, 0.0], [0.0, 2.0], [1.56, 3.0]])
    angles = angles.double()
    values = torch.tensor([10.0, 20.0, 30.0, 40.0, 0.0]).view(1, 5, 1)
    seen = torch.arange(4)
    latlon = facts(domain=((-0.5, 0.5), (0.0, 2.0)), periods=(None, 2.0), latlon=True)
    ball = facts(3, domain=((-1.0, 1.0),) * 3, sphere=True)
    assert filled(angles / torch.pi, values, seen, latlon, "linear")[0, 4] == 10
    assert filled(vectors(angles), values, seen, ball, "linear")[0, 4] == 10


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("d", [1, 2])
def test_very_few_points_or_points_on_a_line_are_enough(count, method, d):
    points = cloud(30, d)
    points[:count] = torch.arange(count).view(-1, 1) / 4.0
    values = points[:, :1].unsqueeze(0)
    found = filled(points, values, torch.arange(count), facts(d), method)
    assert found.isfinite().all()
    assert 0 <= found.min() <= found.max() <= 1


def test_one_triangulation_serves_all_samples_of_a_shared_mask(grid, monkeypatch):
    calls = []
    real = module.Delaunay
    monkeypatch.setattr(module, "Delaunay", lambda p: calls.append(len(p)) or real(p))
    spec = facts(inputs=("a", "b"))
    fill(grid, left, spec, "linear")
    assert calls == [40]
    fill(grid, half, spec, "linear")
    assert calls == [40, 32, 32, 32]


def test_a_view_that_hides_nothing_changes_nothing(grid):
    same = fill(grid, lambda data: data, facts(inputs=("a", "b")), "linear")
    assert torch.equal(same.data.values, grid.data.values)


def test_points_at_the_same_place_keep_their_own_values(make_sample):
    points = torch.tensor([[0.1, 0.1], [0.1, 0.1], [0.9, 0.1], [0.1, 0.9], [0.3, 0.3]])
    values = torch.arange(5.0)[:, None]
    data = Stacked(collate([make_sample(points=points, values=values)]))
    seen = fill(data, lambda d: Stacked(d.data.take_points(torch.arange(4))), facts(), "linear")
    assert torch.equal(seen[0].values[:4], values[:4])


def test_what_cannot_be_filled_is_refused(grid, make_sample):
    spec = facts(inputs=("a", "b"))
    with pytest.raises(UnknownName, match=r"'quadratic'\. Known: linear, cubic, nearest"):
        fill(grid, half, spec, "quadratic")
    with pytest.raises(Unsupported, match="toy has no input values"):
        fill(grid, half, facts(inputs=(), parameters=("p",)), "linear")
    points = cloud(40, 3)
    with pytest.raises(Unsupported, match=r"cubic .* toy has 3: use --fill linear"):
        filled(points, slope(points).unsqueeze(0), torch.arange(20), facts(3), "cubic")
    with pytest.raises(DataError, match="no input point is seen"):
        filled(cloud(4), torch.ones(1, 4, 1), torch.arange(0), facts(), "linear")
    data = Stacked(collate([make_sample(p=2, seed=i) for i in range(2)]))
    with pytest.raises(DataError, match="no input point is seen"):
        fill(data, lambda d: Stacked(d.data.take_points(torch.arange(0))), facts(), "nearest")
