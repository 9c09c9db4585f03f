"""The same data seen otherwise."""

import pytest
import torch

from ipot.data import views
from ipot.data.dataset import Ragged, Stacked, from_samples
from ipot.errors import DataError, UnknownName
from ipot.samples import Sample, collate
from ipot.spec import Spec

SPEC = Spec(name="toy", inputs=("a",), outputs=("u",), domain=((0.0, 2.0), (0.0, 2.0)))


@pytest.fixture
def grid(make_sample):
    line = (torch.arange(4) + 0.5) / 2
    mesh = torch.cartesian_prod(line, line)
    return Stacked(collate([make_sample(16, points=mesh, grid=(4, 4), seed=i) for i in range(3)]))


@pytest.fixture
def ragged(make_sample):
    return Ragged([make_sample(n, points=2 * torch.rand(n, 2), seed=n) for n in (8, 10, 12)])


def rows(sample) -> set[tuple[float, ...]]:
    return {tuple(r) for r in torch.cat([sample.points, sample.values], 1).tolist()}


@pytest.mark.parametrize("kind", ["grid", "ragged"])
def test_keep_draws_rows_of_each_sample(kind, request):
    data = request.getfixturevalue(kind)
    few, again, other = (views.keep(data, 0.5, seed=s) for s in (0, 0, 1))
    for i in range(len(data)):
        assert len(few[i].points) == len(data[i].points) // 2
        assert rows(few[i]) < rows(data[i])
        assert few[i].grid is None
        assert torch.equal(few[i].targets, data[i].targets)
        assert rows(few[i]) == rows(again[i])
    assert any(rows(few[i]) != rows(other[i]) for i in range(len(data)))
    assert not torch.equal(few[0].points[:4], few[1].points[:4])


def test_keep_of_everything_or_almost_nothing(grid):
    assert views.keep(grid, 1.0) is grid
    assert len(views.keep(grid, 1e-9)[0].points) == 1


@pytest.mark.parametrize("fraction", [0.0, -0.5, 1.5, float("nan")])
def test_keep_refuses_what_is_no_fraction(grid, fraction):
    with pytest.raises(DataError, match=r"must lie in \(0, 1\], got"):
        views.keep(grid, fraction)


@pytest.mark.parametrize("kind", ["grid", "ragged"])
@pytest.mark.parametrize("name", sorted(views.MASKS))
def test_mask_keeps_exactly_the_points_it_lets_through(kind, name, request):
    data = request.getfixturevalue(kind)
    inside = {
        "disk": lambda x, y: (x - 0.5) ** 2 + (y - 0.5) ** 2 > 1 / 16,
        "left": lambda x, y: x <= 0.5,
        "right": lambda x, y: x > 0.5,
        "border": lambda x, y: min(x, y) < 0.15 or max(x, y) > 0.85,
    }[name]
    seen = views.mask(data, name, SPEC)
    for i in range(len(data)):
        assert rows(seen[i]) == {r for r in rows(data[i]) if inside(r[0] / 2, r[1] / 2)}
        assert seen[i].grid is None
        assert torch.equal(seen[i].targets, data[i].targets)


def test_mask_leaves_a_shared_mesh_shared(grid):
    assert views.mask(grid, "left", SPEC).data.points.shape == (1, 8, 2)


def test_mask_of_points_that_differ_leaves_the_queries_shared(make_sample):
    queries = torch.rand(4, 2)
    samples = [make_sample(points=torch.full((5, 2), 0.1 * i), queries=queries) for i in (1, 2)]
    assert views.mask(Stacked(collate(samples)), "left", SPEC).data.queries.shape[0] == 1


def test_a_problem_may_bring_its_own_mask(grid):
    assert len(views.mask(grid, "top", SPEC, {"top": lambda x: x[:, 1] > 0.8})[0].points) == 4


def test_bad_masks_are_refused(grid):
    with pytest.raises(UnknownName, match=r"unknown mask 'hole' for toy\. Known: border, disk"):
        views.mask(grid, "hole", SPEC)
    with pytest.raises(DataError, match="'none' leaves no input point"):
        views.mask(grid, "none", SPEC, {"none": lambda x: x[:, 0] > 9})


def test_masks_of_the_sphere_hide_what_they_say():
    angle = torch.linspace(0, 2 * torch.pi, 73)[:-1]
    equator = torch.stack([angle.cos(), angle.sin(), torch.zeros(72)], -1)
    facts = Spec(
        name="globe", inputs=("a",), outputs=("u",), domain=((-1.0, 1.0),) * 3, sphere=True
    )
    data = from_samples(
        [
            Sample(
                points=equator, values=angle[:, None], queries=equator, targets=angle.view(1, 72, 1)
            )
        ]
    )
    for name, seen in (
        ("disk", (angle > torch.pi / 6) & (angle < 11 * torch.pi / 6 - 1e-3)),
        ("right", (angle > 0) & (angle < torch.pi - 1e-3)),
    ):
        assert torch.equal(views.mask(data, name, facts)[0].values[:, 0], angle[seen]), name
    with pytest.raises(UnknownName, match=r"unknown mask 'border' for globe"):
        views.mask(data, "border", facts)
