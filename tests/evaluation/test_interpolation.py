"""Values carried from place to place: exact on parabolas, around seams, on surfaces, in range."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from ipot.errors import DataError
from ipot.evaluation.interpolation import Scattered, Space, common_places
from ipot.spec import Spec

SPEC = Spec(name="box", inputs=("a",), outputs=("u",), domain=((0.0, 2.0), (-1.0, 3.0)))


def cloud(count, seed=0):
    random = torch.Generator().manual_seed(seed)
    unit = torch.rand(count, 2, generator=random, dtype=torch.float64)
    return unit * torch.tensor([2.0, 4.0]) + torch.tensor([0.0, -1.0])


def inner(count, seed):
    return 0.8 * (cloud(count, seed) - 1) + 1


def test_parabolas_are_kept_and_values_at_known_places_too():
    def bowl(x):
        return (x[:, :1] ** 2 - 2 * x[:, :1] * x[:, 1:] + x[:, 1:] + 3).double()

    places, others = cloud(800), inner(50, 1)
    known = Scattered(places, Space.of_points(SPEC))
    assert (known.at(bowl(places), others) - bowl(others)).abs().max() < 5e-3
    assert torch.equal(known.at(bowl(places), places.clone()), bowl(places))
    order = torch.arange(799, -1, -1)
    assert torch.allclose(known.at(bowl(places), places[order]), bowl(places[order]), atol=1e-6)


@pytest.mark.parametrize("periods", [(2.0, None), (2.0, 4.0)])
def test_coordinates_that_repeat_go_around(periods):
    spec = replace(SPEC, periods=periods, query_domain=(), query_periods=())

    def wave(x):
        return (2 * math.pi * x[:, :1] / 2 + 0.7).cos()

    places = cloud(600)
    seam = torch.stack([torch.tensor([0.0, 1e-3, 2 - 1e-3, 2.0, -0.01, 6.01]), torch.ones(6)], 1)
    known = Scattered(places, Space.of_points(spec))
    assert (known.at(wave(places), seam.double()) - wave(seam.double())).abs().max() < 0.01
    # The nearest place of one at the seam may lie behind it.
    near = known.offsets(torch.tensor([[0.0, 1.0]]).double())[0]
    far = known.offsets(torch.tensor([[2.0, 1.0]]).double())[0]
    assert torch.allclose(near, far)


def test_nothing_leaves_the_range_of_what_is_known():
    random = torch.Generator().manual_seed(3)
    places = cloud(60)
    jumps = torch.randint(0, 2, (60, 3), generator=random).double()
    beyond = 5 * (cloud(200, 4) - 1)
    made = Scattered(places, Space.of_points(SPEC)).at(jumps, beyond)
    assert made.min() >= 0
    assert made.max() <= 1


def test_a_surface_in_space():
    spec = Spec(name="ball", inputs=("a",), outputs=("u",), domain=((-1.0, 1.0),) * 3)
    random = torch.Generator().manual_seed(0)

    def ball(count):
        x = torch.randn(count, 3, generator=random, dtype=torch.float64)
        return x / x.norm(dim=1, keepdim=True)

    places, others = ball(1000), ball(100)
    known = Scattered(places, Space.of_points(spec))
    field = (3 * places[:, :1]).sin()
    assert (known.at(field, others) - (3 * others[:, :1]).sin()).abs().max() < 0.02
    # Beside the surface the way to it is straight out, and as long as the distance.
    way = known.offsets(1.5 * others)
    assert torch.allclose(2 * way[:, 3], torch.full((100,), 0.5).double(), atol=0.05)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_hardly_any_places(count):
    places = cloud(count)
    known = Scattered(places, Space.of_points(SPEC))
    values = torch.arange(count).double().unsqueeze(1)
    made = known.at(values, cloud(20, 1))
    assert torch.isfinite(made).all()
    assert made.min() >= 0
    assert made.max() <= count - 1
    with pytest.raises(DataError, match="no point to carry values from"):
        Scattered(places[:0], Space.of_points(SPEC))


def test_common_places_follow_the_clouds():
    random = torch.Generator().manual_seed(0)
    space = Space.of_points(SPEC)
    dense = [0.2 * torch.rand(90, 2, generator=random) for _ in range(50)]
    sparse = [torch.rand(10, 2, generator=random) for _ in range(50)]
    clouds = [torch.cat(both) for both in zip(dense, sparse, strict=True)]
    found = common_places(clouds, space, 128)
    assert len(found) == 128
    assert torch.equal(found, common_places(clouds, space, 128))
    share = (found < 0.2).all(1).float().mean()
    assert 0.7 < share < 0.98
    everything = torch.cat(clouds)
    assert all((everything == place).all(1).any() for place in found)


def test_common_places_of_parts_of_one_grid_are_its_nodes():
    random = torch.Generator().manual_seed(0)
    grid = torch.cartesian_prod(torch.arange(8) / 8, torch.arange(8) / 8)
    clouds = [grid[torch.randperm(64, generator=random)[:40]] for _ in range(30)]
    found = common_places(clouds, Space.of_points(SPEC), 100)
    assert len(found) == 64
    assert {tuple(place) for place in found.tolist()} == {tuple(place) for place in grid.tolist()}
