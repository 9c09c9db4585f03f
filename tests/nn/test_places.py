"""From points to the places of a lattice and back: exact where points lie on it, inert padding,
periods, the globe, and pieces that add up."""

import math

import pytest
import torch

from ipot.nn.globe import on_globe
from ipot.nn.places import BoxChart, GlobeChart, Places, ToPlaces, cubic, filled
from ipot.spec import Bounds

SQUARE: Bounds = ((0.0, 1.0), (0.0, 1.0))


def lattice(*counts, domain=SQUARE, periods=None) -> Places:
    return Places(BoxChart(domain, periods or (None,) * len(domain)), counts).double()


def draw(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_places_span_the_domain_and_one_period():
    places = lattice(3, 4, domain=((-1.0, 1.0), (0.0, 2.0)), periods=(None, 2.0))
    rows = places.coordinates()[0].view(3, 4, 2)
    assert rows[:, 0, 0].tolist() == [-1, 0, 1]
    assert rows[0, :, 1].tolist() == [0, 0.5, 1, 1.5]


def test_inputs_on_the_places_are_their_values_in_any_order():
    places = lattice(5, 6)
    values, order = draw(2, 30, 3), torch.randperm(30)
    found, way = ToPlaces(places)(places.coordinates()[:, order], values[:, order])
    torch.testing.assert_close(found, values)
    torch.testing.assert_close(way, 0 * way, atol=1e-9, rtol=0)


def test_a_finer_grid_gives_what_lies_on_the_places():
    places, fine = lattice(5, 5), lattice(17, 17)
    values = draw(1, 17 * 17, 1)
    found, way = ToPlaces(places)(fine.coordinates(), values)
    expected = values.view(17, 17)[::4, ::4].reshape(1, 25, 1)
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=0)
    assert way[..., 2].abs().max() == 0  # heard in full


def test_the_sums_against_the_formula():
    places, x, a = lattice(4, 3), draw(1, 9, 2), draw(1, 9, 1, seed=1)
    found, way = ToPlaces(places)(x, a)
    gaps = torch.tensor([1 / 3, 1 / 2]).double()
    off = (x[0][None] - places.coordinates()[0][:, None]) / gaps
    tent = (1 - off.abs()).clamp(min=0).prod(-1)
    w = tent / (off.square().sum(-1) + 0.03**2) ** 2
    heard = tent.sum(1) >= 1  # those that take nothing from coarser lattices
    assert 0 < heard.sum() < 12
    mean = (w @ a[0]) / w.sum(1, keepdim=True)
    torch.testing.assert_close(found[0][heard], mean[heard])
    some = tent.sum(1) > 0
    far = (w.unsqueeze(-1) * off).sum(1) / w.sum(1, keepdim=True)
    torch.testing.assert_close(way[0, some, :2], far[some])
    torch.testing.assert_close(way[0, :, 2], 1 - tent.sum(1).clamp(max=1))


def test_places_without_inputs_take_what_coarser_lattices_have():
    places = lattice(9, 7)
    x = draw(1, 5, 2)
    constant, _ = ToPlaces(places)(x, torch.full((1, 5, 1), 2.5).double())
    torch.testing.assert_close(constant, torch.full_like(constant, 2.5))
    values = draw(1, 5, 1)
    found, _ = ToPlaces(places)(x, values)
    assert values.min() - 1e-9 <= found.min() <= found.max() <= values.max() + 1e-9


def test_filling_keeps_what_is_sure():
    values, sure = draw(2, 3, 5, 8), (draw(1, 1, 5, 8) > 0.7).double()
    found = filled(values, sure)
    torch.testing.assert_close(found * sure, values * sure)
    assert found.isfinite().all()
    alone = torch.zeros(1, 1, 5, 8).double()
    alone[..., 2, 3] = 1
    torch.testing.assert_close(filled(values, alone), values[..., 2:3, 3:4].expand_as(values))


def test_pieces_add_up_and_padding_says_nothing():
    part = ToPlaces(lattice(6, 6))
    x, a = draw(2, 20, 2), draw(2, 20, 2, seed=1)
    whole = part(x, a)
    pieces = [part.sums(x[:, i : i + 7], a[:, i : i + 7]) for i in (0, 7, 14)]
    for found, expected in zip(
        part.mean(pieces[0].plus(pieces[1]).plus(pieces[2])), whole, strict=True
    ):
        torch.testing.assert_close(found, expected)
    mask = torch.arange(24) < torch.tensor([[20], [20]])
    padded = [torch.cat([t, 1e3 * draw(2, 4, t.shape[-1])], 1) for t in (x, a)]
    for found, expected in zip(part(*padded, mask), whole, strict=True):
        torch.testing.assert_close(found, expected)


def test_a_cubic_is_met_between_places_and_each_place_is_itself():
    places = lattice(7, 9)
    x = places.coordinates()[0]

    def field(p):
        return (p[..., :1] ** 3 - p[..., :1]) * (2 * p[..., 1:] ** 3 + p[..., 1:] ** 2)

    queries = draw(1, 50, 2)
    torch.testing.assert_close(places(queries).look_up(field(x)[None]), field(queries))
    own = places(x[None])
    torch.testing.assert_close(own.look_up(field(x)[None]), field(x)[None])
    assert ((own.weight - 1).abs().amin(-1) < 1e-9).all()


def test_answers_follow_where_queries_and_inputs_move():
    """A place is a differentiable function of both."""
    places = lattice(7, 7)
    queries, x = draw(1, 4, 2).requires_grad_(), draw(1, 30, 2, seed=2).requires_grad_()
    values = draw(1, 30, 1)

    def answer(x, queries):
        return places(queries).look_up(ToPlaces(places)(x, values)[0])

    assert torch.autograd.gradcheck(answer, (x, queries), atol=1e-4, rtol=1e-3)


def test_periodic_axes_wrap_both_ways():
    places = lattice(8, 8, periods=(1.0, 1.0))
    angle = 2 * math.pi

    def field(p):
        return torch.sin(angle * p[..., :1]) * torch.cos(angle * p[..., 1:])

    x = draw(1, 2000, 2) * 3 - 1  # any period
    found, _ = ToPlaces(places)(x, field(x))
    torch.testing.assert_close(found, field(places.coordinates()), atol=0.1, rtol=0)
    asked = places(x).look_up(field(places.coordinates()))
    again = places(x + torch.tensor([1.0, -2.0])).look_up(field(places.coordinates()))
    torch.testing.assert_close(asked, again)
    torch.testing.assert_close(asked, field(x), atol=0.03, rtol=0)


def test_the_first_grid_of_points_is_the_lattice():
    places = lattice(5, 4)
    lines = 0.1 + 0.2 * torch.arange(5.0), 0.05 + 0.3 * torch.arange(4.0)
    mesh = torch.cartesian_prod(*lines).double()
    places.measure(mesh[torch.randperm(20)])
    torch.testing.assert_close(places.coordinates()[0], mesh)
    before = places.origin.clone()
    places.measure(draw(20, 2))  # no grid
    places.measure(torch.cartesian_prod(torch.rand(5), torch.rand(4)))  # not even
    places.measure(torch.cartesian_prod(torch.linspace(0, 1, 4), torch.linspace(0, 1, 5)))
    assert torch.equal(places.origin, before)
    ring = lattice(4, periods=(1.0,), domain=((0.0, 1.0),))
    ring.measure(torch.linspace(0, 1, 4).double()[:, None])  # does not close
    torch.testing.assert_close(ring.coordinates()[0, :, 0], torch.arange(4).double() / 4)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_places_answer_with_what_they_have(count):
    number, share = cubic(torch.tensor([[0.3, 5.0, -4.0]]), count, wraps=False)
    assert number.shape == (1, 3, count)
    assert 0 <= number.min() <= number.max() < count
    torch.testing.assert_close(share.sum(-1), torch.ones(1, 3))


def test_the_globe_is_latitude_and_longitude():
    whole = GlobeChart(((-180.0, 180.0), (-90.0, 90.0)), ()).double()
    places = Places(whole, (9, 16)).double()
    assert places.wraps == (False, True)
    torch.testing.assert_close(places.coordinates().norm(dim=-1), torch.ones(1, 144).double())
    degrees = torch.tensor([[179.0, 10.0], [-179.0, 10.0], [540.0, -30.0]]).double()
    rows = whole(on_globe(degrees))
    torch.testing.assert_close(rows[:, 0], (degrees[:, 1] + 90) / 180)
    gap = (rows[1, 1] - rows[0, 1]) % 1
    torch.testing.assert_close(gap, torch.tensor(2 / 360).double())
    torch.testing.assert_close(whole.inverse(rows), on_globe(degrees))
    part = GlobeChart(((170.0, 200.0), (0.0, 30.0), (0.0, 5.0)), (None,)).double()
    assert part.dimension == 4
    inside = torch.tensor([[-175.0, 15.0, 2.5]]).double()  # is 185 degrees
    torch.testing.assert_close(part(on_globe(inside)), torch.full((1, 3), 0.5).double())
