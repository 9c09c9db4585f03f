"""The factorised Fourier neural operator: one kernel for all layers, and points off the grid."""

import dataclasses

import pytest
import torch

from ipot.errors import DataError, Unsupported
from ipot.models.base import parameter_count
from ipot.models.ffno import FFNO, Config
from ipot.nn.grid import to_rows, unit_grid
from ipot.nn.nonuniform import Chart, analysis
from ipot.nn.spectral import block, to_modes
from ipot.samples import Batch
from ipot.spec import Need, Spec

GRID = frozenset({Need.GRID, Need.SAME_POINTS})
TORUS = Spec(
    name="toy",
    inputs=("a",),
    outputs=("u",),
    domain=((0.0, 1.0), (0.0, 1.0)),
    periods=(1.0, 1.0),
    provides=GRID,
)
CLOUD = dataclasses.replace(TORUS, provides=frozenset())
SMALL = Config(modes=(3,), width=8, layers=3, latent=(10,), map_width=8)


def at_rest(chart: Chart) -> Chart:
    """The chart without its movement."""
    with torch.no_grad():
        for parameter in chart.move.parameters():
            parameter.zero_()
    return chart


def batch(n: int = 30, m: int = 20) -> Batch:
    torch.manual_seed(1)
    return Batch(
        points=torch.rand(2, n, 2).double(),
        values=torch.randn(2, n, 1).double(),
        queries=torch.rand(2, m, 2).double(),
    )


def test_shared_weights_are_one_tensor():
    """One for each axis, and all layers go through it."""
    shared, apart = (FFNO(dataclasses.replace(SMALL, shared=s), TORUS) for s in (True, False))
    assert len(list(shared.kernels.parameters())) == 2
    assert len(list(apart.kernels.parameters())) == 3 * 2
    calls = []
    shared.kernels[0].register_forward_hook(lambda *_: calls.append(1))
    shared._convolve(torch.randn(1, 8, 10, 10))
    assert len(calls) == 3


def test_a_layer_is_a_residual_around_the_feed_forward():
    model = FFNO(dataclasses.replace(SMALL, layers=1), TORUS)
    x = torch.randn(2, 8, 10, 12)
    z = model.kernels[0](x).movedim(1, -1)
    first, _, second = model.feed_forwards[0]
    for layer in (first, second):
        direction = layer.parametrizations.weight.original1
        norm = direction.norm(dim=1, keepdim=True)
        weight = direction * (layer.parametrizations.weight.original0 / norm)
        z = z.relu() if layer is second else z
        z = z @ weight.T + layer.bias
    torch.testing.assert_close(model._convolve(x), x + z.movedim(-1, 1))


def test_the_spec_decides_whether_points_are_mapped():
    assert not FFNO(SMALL, TORUS).mapped
    assert FFNO(SMALL, TORUS).needs >= GRID
    assert FFNO(dataclasses.replace(SMALL, mapped=True), TORUS).mapped
    assert FFNO(SMALL, CLOUD).mapped
    assert FFNO(SMALL, CLOUD).needs == {Need.POINTS}


def test_a_grid_that_is_not_moved_has_its_own_coefficients():
    """With the map at rest, points of a periodic grid give the coefficients of its FFT."""
    model = FFNO(dataclasses.replace(SMALL, mapped=True), TORUS).double()
    field = torch.randn(2, 8, 12, 14).double()
    places = at_rest(model.charts[0])(unit_grid((12, 14), field))
    low = analysis(to_rows(field), places, block(model.latent, model.modes))
    torch.testing.assert_close(low, to_modes(field, model.modes), atol=1e-12, rtol=1e-12)


def test_mapped_and_direct_agree_on_a_grid_at_rest():
    """Band-limited fields, a latent grid as fine as the given one: the two paths are one."""
    torch.manual_seed(0)
    config = dataclasses.replace(SMALL, latent=(12,), layers=1)
    direct = FFNO(config, TORUS).double()
    mapped = FFNO(dataclasses.replace(config, mapped=True), TORUS).double()
    mapped.load_state_dict(direct.state_dict(), strict=False)
    at_rest(mapped.charts[0])
    for model in (direct, mapped):
        model.project = torch.nn.Identity()
        for feed_forward in model.feed_forwards:
            feed_forward[1] = torch.nn.Identity()  # linear: it stays in the band
    points = unit_grid((12, 12), torch.zeros(1).double())
    wave = torch.cos(2 * torch.pi * (points[0] @ torch.tensor([1.0, 2.0]).double()) + 0.3)
    given = Batch(
        points=points,
        values=wave[None, :, None],
        queries=points,
        grid=(12, 12),
        query_grid=(12, 12),
    )
    with torch.no_grad():
        for model in (direct, mapped):
            model.lift.parametrizations.weight.original1[:, 1:] = 0  # coordinates jump at the seam
        for place in (mapped.latent_place, mapped.query_place):
            for parameter in place.parameters():
                parameter.zero_()
    torch.testing.assert_close(mapped(given), direct(given), atol=1e-12, rtol=1e-12)


def test_queries_are_asked_one_by_one():
    """Any queries: what is answered at one does not depend on the others."""
    model, given = FFNO(SMALL, CLOUD).double(), batch()
    some = given.take_queries(torch.tensor([3, 5]))
    torch.testing.assert_close(model(some), model(given)[:, :, [3, 5]], atol=1e-12, rtol=1e-12)


def test_a_periodic_space_has_no_seam():
    model, given = FFNO(SMALL, CLOUD).double(), batch()
    shift = torch.tensor([1.0, -2.0]).double()
    places, moved = (model.charts[0](x) for x in (given.points, given.points + shift))
    torch.testing.assert_close(moved - places, shift.expand_as(places), atol=1e-12, rtol=0)


def test_open_ends_do_not_meet():
    chart = at_rest(
        Chart(((0.0, 2.0), (0.0, 1.0)), (None, 1.0), padding=(0.25, 0.25), codes=0, width=4)
    )
    corners = torch.tensor([[[0.0, 0.0], [2.0, 1.0]]])
    assert chart(corners).tolist() == [[[0.0, 0.0], [pytest.approx(0.8), 1.0]]]


def test_a_sphere_is_seen_by_its_angles():
    chart = at_rest(
        Chart(((-1.0, 1.0),) * 3, (None,) * 3, padding=(0.0, 0.0), codes=0, width=4, sphere=True)
    )
    points = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, -1.0]]])
    places = chart(points)[0]
    torch.testing.assert_close(places[:2], torch.tensor([[0.5, 0.0], [0.5, 0.25]]))
    assert places[2, 0].item() == pytest.approx(1.0, abs=1e-6)


def test_the_map_starts_close_to_the_identity():
    model, given = FFNO(SMALL, CLOUD).double(), batch()
    chart = model.charts[0]
    moved = (chart(given.points) - chart.still(given.points)).abs().max()
    assert 0 < moved < 0.02


def test_the_published_size():
    """Four layers of width 64 with 16 shared modes: 0.40 million weights on Darcy flow."""
    darcy = dataclasses.replace(TORUS, periods=(None, None), query_periods=(None, None))
    assert parameter_count(FFNO(Config(), darcy)) == 404_674


def test_what_it_cannot_do_is_refused():
    with pytest.raises(Unsupported, match="an input function on points"):
        FFNO(SMALL, dataclasses.replace(CLOUD, inputs=(), parameters=("p",)))
    with pytest.raises(Unsupported, match=r"model\.latent must be one number"):
        FFNO(dataclasses.replace(SMALL, latent=(8, 8, 8)), CLOUD)
    with pytest.raises(DataError, match="needs a grid"):
        FFNO(SMALL, TORUS).double()(batch(20, 20))


@pytest.mark.parametrize(
    ("name", "value"),
    [("modes", (0,)), ("feed_forward", 0), ("map_width", 0), ("latent", (1,)), ("latent", ())],
)
def test_nonsense_is_refused(name, value):
    with pytest.raises(Unsupported, match=f"model.{name} must"):
        Config(**{name: value})
