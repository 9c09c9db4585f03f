"""Features and projections of points in C++ against the formulas in float64."""

import pytest
import torch
from torch import nn

from ipot.accelerate import accelerate
from ipot.accelerate.cpu import project
from ipot.accelerate.cpu.build import why_not
from ipot.accelerate.cpu.interface import available
from ipot.accelerate.cpu.project import waves
from ipot.nn.points import FourierFeatures
from tests.accelerate.cpu.threads import with_one_and_with_three

pytestmark = pytest.mark.skipif(not available(), reason=f"no library: {why_not()}")

# Largest frequencies are about 32 half turns: a coordinate's last bit moves a feature by 6e-6.
NOISE = 1e-5

FEATURES = {
    "plane": FourierFeatures((32, 32), (64.0, 64.0), domain=((0.0, 1.0), (-3.0, 5.0))),
    "ring": FourierFeatures((5,), (10.0,), domain=((0.0, 1.0),), periods=(1.0,)),
    "space": FourierFeatures((20, 3, 9), (12.0, 6.0, 40.0)),
    "half a ring": FourierFeatures(
        (3, 17), (4.0, 9.0), domain=((0.0, 2.0), (0.0, 1.0)), periods=(2.0, None)
    ),
    "no phases": FourierFeatures((0, 0), (2.0, 2.0)),
}


def points_of(position, samples=2, count=131):
    torch.manual_seed(0)
    low, size = position.centre - position.radius, 2 * position.radius
    return low + size * torch.rand(samples, count, len(position.centre))


def exactly(position, points):
    """The formula in float64."""
    position.double()
    try:
        return position(points.double())
    finally:
        position.float()


@pytest.mark.parametrize("name", FEATURES)
def test_features_are_those_of_the_formula(name):
    position = FEATURES[name]
    points = points_of(position)
    found = project.features(points, waves(position))
    wanted = exactly(position, points)
    assert found.shape == wanted.shape
    assert (found - wanted).abs().max() < NOISE


@pytest.mark.parametrize("name", FEATURES)
@pytest.mark.parametrize(("channels", "columns"), [(0, 64), (1, 128), (3, 7)])
def test_projections_are_those_of_the_layers(name, channels, columns):
    position = FEATURES[name]
    points = points_of(position)
    values = torch.randn(2, 131, channels) if channels else None
    norm = nn.LayerNorm(position.width + channels)
    linear = nn.Linear(position.width + channels, columns)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    with torch.no_grad():
        weight, offset = linear.weight * norm.weight, linear.weight @ norm.bias + linear.bias
        found = project.project(points, values, waves(position), weight, offset, norm.eps)
        tokens = exactly(position, points)
        if values is not None:
            tokens = torch.cat([tokens, values.double()], -1)
        wanted = linear.double()(norm.double()(tokens))
    assert found.shape == wanted.shape
    assert (found - wanted).abs().max() < 2 * NOISE * wanted.abs().max()


@pytest.mark.parametrize("name", FEATURES)
def test_products_come_with_the_sums_of_features(name):
    position = FEATURES[name]
    points, weight = points_of(position), torch.randn(9, position.width)
    found, sums = project.mesh_products(points, waves(position), weight)
    tokens = exactly(position, points)
    wanted = tokens @ weight.double().T
    assert (found - wanted).abs().max() < NOISE * weight.abs().sum(1).max()
    assert (sums[..., 0] - tokens.sum(-1)).abs().max() < NOISE * position.width
    assert (sums[..., 1] - tokens.square().sum(-1)).abs().max() < 2 * NOISE * position.width


def scattered(x):
    """The same numbers with other distances between them."""
    found = x.transpose(-1, -2).contiguous().transpose(-1, -2)
    assert found.stride(-1) != 1
    return found


def test_tensors_may_lie_anyhow():
    position = FEATURES["plane"]
    points, values, given = points_of(position), torch.randn(2, 131, 3), waves(position)
    weight, offset = torch.randn(9, position.width + 3), torch.randn(9)
    wanted = project.project(points, values, given, weight, offset, 1e-5)
    others = scattered(points), scattered(values), given, scattered(weight), offset, 1e-5
    assert torch.equal(project.project(*others), wanted)
    assert torch.equal(project.features(scattered(points), given), project.features(points, given))
    part = weight[:, : position.width]  # as it is cut from that of a layer
    wanted = project.mesh_products(points, given, part.contiguous())[0]
    assert torch.equal(project.mesh_products(points, given, part)[0], wanted)


def test_epsilon_counts_where_features_hardly_differ():
    position = FEATURES["no phases"]
    points = points_of(position) * 1e-3
    weight = torch.randn(4, 2)
    found = project.project(points, None, waves(position), weight, torch.zeros(4), 1e-5)
    wanted = nn.functional.layer_norm(exactly(position, points), (2,), eps=1e-5)
    wanted = wanted @ weight.double().T
    assert (found - wanted).abs().max() < NOISE * wanted.abs().max()


def test_results_do_not_depend_on_threads():
    position = FEATURES["plane"]
    points, values = points_of(position, 3, 40_000), torch.randn(3, 40_000, 1)
    given = waves(position), torch.randn(40, position.width + 1), torch.randn(40), 1e-5
    assert torch.equal(*with_one_and_with_three(lambda: project.project(points, values, *given)))


@pytest.mark.parametrize("count", [0, 1, 60, 61])
def test_any_number_of_points(count):
    position = FEATURES["plane"]
    points = points_of(position, 1, count)
    assert project.features(points, waves(position)).shape == (1, count, 130)
    weight = torch.randn(4, 130)
    found = project.project(points, None, waves(position), weight, torch.zeros(4), 1e-5)
    assert found.shape == (1, count, 4)
    assert found.isfinite().all()


@pytest.mark.parametrize("size", [1e5, 1e6, 1e7, 1e9, 1e20, 1e35])
def test_far_away_points_have_features_of_size_one(size):
    position = FEATURES["space"]
    points = size * torch.randn(1, 50, 3)
    found = project.features(points, waves(position))[..., 3:]
    assert found.abs().max() <= 1 + 1e-6


def test_what_is_not_a_number_is_not_lost():
    position = FEATURES["space"]
    points = torch.tensor([[[0.5, torch.nan, 0.0], [torch.inf, 0.5, 1.0], [0.1, 0.2, 0.3]]])
    found = project.features(points, waves(position)).isnan()
    assert torch.equal(found, exactly(position, points).isnan())
    assert found.any(-1).tolist() == [[True, True, False]]


def test_the_module_takes_them_for_points_as_data():
    position = FEATURES["plane"]
    points = points_of(position)
    quick = accelerate(position)
    found = quick(points)
    assert torch.equal(found, project.features(points, waves(position)))
    assert torch.equal(quick(points[0, 0]), found[0, 0])
    formula = position(points)
    assert not torch.equal(found, formula)
    assert (found - formula).abs().max() < 2 * NOISE
    asked = points.clone().requires_grad_()
    assert torch.equal(quick(asked).detach(), formula)
