"""Random data in the shapes of the real ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ipot.bench import samples
from ipot.data.dataset import Stacked
from ipot.errors import DataError, UnknownName
from ipot.recipes.experiment import build, experiment
from ipot.recipes.paper import TABLE
from ipot.samples import Batch
from ipot.spec import Need, Spec

CPU = torch.device("cpu")
# points, their dimension, channels; queries, their dimension; times, outputs; training samples
PAPER = {
    "burgers": (1024, 1, 1, 1024, 1, 1, 1, 1000),
    "darcy": (85**2, 2, 1, 85**2, 2, 1, 1, 1000),
    "navier_stokes": (64**2, 2, 10, 64**2, 2, 40, 1, 1000),
    "airfoil": (221 * 51, 2, 2, 221 * 51, 2, 1, 1, 1000),
    "elasticity": (972, 4, 1, 972, 4, 1, 1, 1000),
    "plasticity": (62_620, 3, 1, 62_620, 3, 1, 4, 900),
    "shallow_water": (8192, 3, 2, 8192, 3, 19, 2, 224),
    "era5": (16_200, 2, 7, 16_200, 2, 7, 1, 225),
}


def test_all_problems_of_the_paper_are_there():
    assert set(TABLE) == set(PAPER) <= set(samples.FIELDS)


@pytest.mark.parametrize("problem", PAPER)
def test_shapes_of_the_paper(problem):
    settings = experiment(problem, "ipot", "paper")
    found = samples.random_samples(settings.problem, 2).data
    n, d, c, m, e, t, k, train = PAPER[problem]
    own = 2 if problem == "elasticity" else 1
    assert found.points.shape == (own, n, d)
    assert found.values.shape == (2, n, c)
    assert found.queries.shape == (own, m, e)
    assert found.truth.shape == (2, t, m, k)
    assert len(found.times) == t
    assert settings.data.train == train
    assert settings.training.batch == TABLE[problem].batch
    # Samples differ, and so do points of each.
    assert not torch.equal(found.values[0], found.values[1])
    assert not torch.equal(found.truth[0], found.truth[1])
    build(settings).spec.check(found)


@pytest.mark.parametrize("problem", [*PAPER, "era5_synthetic"])
def test_the_default_view_too(problem):
    settings = experiment(problem)
    data = samples.random_samples(settings.problem.small(), 3)
    assert len(data) == 3
    replace(settings.problem.small().spec).check(data.data)


def test_drawn_once_and_for_all():
    problem = experiment("darcy").problem.small()
    first, again = (samples.random_samples(problem, 3).data for _ in range(2))
    other = samples.random_samples(problem, 3, seed=1).data
    assert torch.equal(first.truth, again.truth)
    assert not torch.equal(first.truth, other.truth)
    assert set(first.values.unique().tolist()) == {3.0, 12.0}


def test_unknown_data():
    with pytest.raises(UnknownName, match=r"shape of sst's data.*darcy"):
        samples.random_samples(experiment("sst").problem, 2)


@pytest.mark.parametrize("problem", ["darcy", "elasticity"])
def test_meshes_of_their_own(problem):
    shared = samples.random_samples(experiment(problem).problem.small(), 3)
    found, given = samples.own_meshes(shared).data, shared.data
    assert found.points.shape == (3, *given.points.shape[1:])
    assert found.queries.shape == (3, *given.queries.shape[1:])
    assert torch.equal(found.points, given.points.expand_as(found.points))
    assert torch.equal(found.queries, given.queries.expand_as(found.queries))
    assert found.values is given.values
    assert found.grid is found.query_grid is None


def test_moving_meshes_and_weights_of_their_own():
    random = torch.Generator().manual_seed(0)
    given = Batch(
        points=torch.rand(1, 5, 2, generator=random),
        values=torch.rand(3, 5, 1, generator=random),
        queries=torch.rand(1, 2, 4, 2, generator=random),
        targets=torch.rand(3, 2, 4, 1, generator=random),
        weights=torch.rand(1, 4, generator=random),
        times=(1.0, 2.0),
    )
    found = samples.own_meshes(Stacked(given)).data
    assert found.queries.shape == (3, 2, 4, 2)
    assert torch.equal(found.queries[2], given.queries[0])
    assert torch.equal(found.weights, given.weights.expand(3, -1))
    uneven = samples.uneven(Stacked(given), 0.5)
    for sample in uneven.samples:
        m = sample.queries.shape[-2]
        assert torch.equal(sample.queries[:, :2], given.queries[0][:, :2])
        assert sample.targets.shape == (2, m, 1)
        assert sample.weights.shape == (m,)


@pytest.mark.parametrize("spread", [0.0, 0.3, 0.99])
@pytest.mark.parametrize("count", [1, 2, 41])
def test_uneven_sizes_have_their_mean(spread, count):
    random = torch.Generator().manual_seed(count)
    found = samples.uneven_sizes(100, count, spread, random)
    assert len(found) == count
    assert sum(found) == 100 * count
    assert min(found) >= max(1, 100 - 100 * spread)
    assert max(found) <= 100 + 100 * spread
    assert len(set(found)) == 1 or spread > 0
    if count == 41 and spread:
        assert max(found) > 100 + 80 * spread
        assert len(set(found)) > 15
        assert found != sorted(found)


@pytest.mark.parametrize("problem", ["darcy", "airfoil", "plasticity"])
def test_uneven_samples(problem):
    given = samples.random_samples(experiment(problem).problem.small(), 6)
    found = samples.uneven(given, 0.5)
    again, other = samples.uneven(given, 0.5), samples.uneven(given, 0.5, seed=1)
    whole = given.data
    n, m = whole.values.shape[1], whole.queries.shape[-2]
    sizes = [(len(s.points), s.queries.shape[-2]) for s in found.samples]
    assert [sum(side) for side in zip(*sizes, strict=True)] == [6 * n, 6 * m]
    assert len(set(sizes)) > 2
    assert all(0.5 * n <= p <= 1.5 * n and 0.5 * m <= q <= 1.5 * m for p, q in sizes)
    # Queries at the points come with the points.
    assert all(p == q for p, q in sizes) == torch.equal(whole.points, whole.queries)
    assert sizes == [(len(s.points), s.queries.shape[-2]) for s in again.samples]
    assert sizes != [(len(s.points), s.queries.shape[-2]) for s in other.samples]
    for i, (sample, (p, q)) in enumerate(zip(found.samples, sizes, strict=True)):
        assert sample.grid is sample.query_grid is None
        assert torch.equal(sample.values[:n], given[i].values[:p])
        assert torch.equal(sample.values[n:], given[i].values[: max(0, p - n)])
        assert torch.equal(sample.truth[:, :m], given[i].truth[:, :q])


PLANE = Spec(
    name="plane",
    inputs=("a",),
    outputs=("u",),
    domain=((-1.0, 1.0), (5.0, 7.0)),
    steps=3,
    dt=0.5,
    parameters=("p", "q"),
)


def test_points_lie_in_the_domain_all_of_them(monkeypatch):
    monkeypatch.setattr(samples, "CHUNK", 100)
    found = samples.random_question(PLANE, 1001, None, CPU)
    assert found.points.shape == (1, 1001, 2)
    low, high = found.points[0].amin(0), found.points[0].amax(0)
    assert low[0] >= -1
    assert high[0] <= 1
    assert low[1] >= 5
    assert high[1] <= 7
    assert (high - low).min() > 1.9
    assert len(found.points[0].unique(dim=0)) == 1001
    assert found.queries is found.points
    assert found.times == (0.5, 1.0, 1.5)
    assert found.parameters.shape == (1, 2)
    assert found.grid is None


def test_samples_on_the_same_points():
    found = samples.random_question(PLANE, 50, None, CPU, batch=3)
    assert found.points.shape == (1, 50, 2)
    assert found.values.shape == (3, 50, 1)
    assert found.parameters.shape == (3, 2)
    assert len(found.values.unique()) == 150


def test_queries_of_their_own():
    found = samples.random_question(PLANE, 50, 20, CPU)
    assert found.queries.shape == (1, 20, 2)
    assert not torch.isin(found.queries, found.points).any()
    line = replace(PLANE, query_domain=((0.0, 1.0),), query_periods=(None,))
    assert samples.random_question(line, 50, None, CPU).queries.shape == (1, 50, 1)


@pytest.mark.parametrize("grid", [False, True])
@pytest.mark.parametrize("queries", [None, 70])
def test_points_on_a_sphere(grid, queries):
    globe = replace(PLANE, domain=((-1.0, 1.0),) * 3, periods=(None,) * 3, sphere=True)
    globe = replace(globe, query_domain=globe.domain, query_periods=globe.periods)
    needs = frozenset({Need.GRID}) if grid else frozenset()
    found = samples.random_question(globe, 100, queries, CPU, needs=needs)
    for places in (found.points, found.queries):
        torch.testing.assert_close(places.norm(dim=-1), torch.ones(places.shape[:2]))
    assert found.grid == ((10, 10) if grid else None)


def test_a_grid_where_one_is_needed():
    found = samples.random_question(PLANE, 1000, None, CPU, needs=frozenset({Need.GRID}))
    assert found.grid == found.query_grid == (32, 32)
    mesh = found.points.view(32, 32, 2)
    assert torch.equal(mesh[0, 0], torch.tensor([-1.0, 5.0]))
    assert torch.equal(mesh[-1, -1], torch.tensor([1.0, 7.0]))
    assert (mesh.diff(dim=0)[..., 0] > 0).all()
    assert samples.grid_of(replace(PLANE, domain=((0.0, 1.0),), periods=(None,)), 50) == (50,)


@pytest.mark.parametrize("value", [0.0, -1.0, 0.5, 1.5, float("nan"), float("inf"), 1.1e9])
def test_counts_that_are_none(value):
    with pytest.raises(DataError, match="--points must be"):
        samples.check_count("points", value)


def test_counts_as_people_write_them():
    assert samples.check_count("points", 1e6) == 10**6
    assert samples.check_count("points", 1e9) == 10**9


def test_points_that_do_not_fit(monkeypatch):
    monkeypatch.setattr(samples, "free_memory", lambda device: 1e-6)  # 1074 bytes
    # Two coordinates, one value, three answers: 24 bytes a point.
    samples.check_room(PLANE, 44, None, CPU)
    with pytest.raises(DataError, match="45 points and 45 queries of plane take"):
        samples.check_room(PLANE, 45, None, CPU)
    with pytest.raises(DataError, match="45 queries"):
        samples.check_room(PLANE, 44, 45, CPU)
    with pytest.raises(DataError, match="27 points"):
        samples.check_room(PLANE, 27, None, CPU, 2)  # 40 bytes a point
    samples.check_room(PLANE, 26, None, CPU, 2)
    monkeypatch.setattr(samples, "free_memory", lambda device: None)
    samples.check_room(PLANE, 10**9, None, CPU)
