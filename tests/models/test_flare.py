"""FLARE: its routing from the equations, heads apart, padding, what it refuses."""

import pytest
import torch

from ipot.errors import Unsupported
from ipot.models.flare import FLARE, Config, Routing
from ipot.samples import Batch
from ipot.spec import Need, Spec

SMALL = Config(width=8, blocks=2, heads=2, latents=3, layers=2, ends=1)
SPEC = Spec(
    name="toy",
    inputs=("a",),
    outputs=("u", "v"),
    domain=((0.0, 2.0), (-1.0, 1.0)),
    provides=frozenset({Need.SAME_POINTS}),
)


def residual(network, x):
    """Where the width stays: x + GELU(W x), residual layers, and the last layer added."""
    gelu = torch.nn.functional.gelu
    x = x + gelu(network.into(x))
    for layer in network.hidden:
        x = x + gelu(layer(x))
    return x + network.out(x)


def by_hand(route, x):
    """Sums over points and latents of one sample, head by head, without a scale on scores."""
    key, value = residual(route.to_key, x), residual(route.to_value, x)
    heads = []
    for h in range(2):
        k, v, q = key[:, 4 * h : 4 * h + 4], value[:, 4 * h : 4 * h + 4], route.latents[h]
        z = torch.stack([((q_m @ k.T).softmax(0)[:, None] * v).sum(0) for q_m in q])
        heads.append(torch.stack([((q @ k_n).softmax(0)[:, None] * z).sum(0) for k_n in k]))
    return route.to_out(torch.cat(heads, 1))


def test_routing_is_that_of_the_equations():
    torch.manual_seed(0)
    route = Routing(SMALL).double()
    torch.nn.init.normal_(route.latents)
    x = torch.randn(2, 7, 8, dtype=torch.float64)
    found = route(x, None)
    torch.testing.assert_close(found, torch.stack([by_hand(route, one) for one in x]))
    mask = torch.ones(2, 7, dtype=torch.bool)
    mask[1, 4:] = False
    padded = route(x, mask)
    torch.testing.assert_close(padded[0], found[0])
    torch.testing.assert_close(padded[1, :4], by_hand(route, x[1, :4]))


def test_every_head_has_latents_of_its_own():
    model = FLARE(SMALL, SPEC)
    shapes = {tuple(block.route.latents.shape) for block in model.blocks}
    assert shapes == {(2, 3, 4)}


def test_any_points_in_any_order():
    torch.manual_seed(1)
    model = FLARE(SMALL, SPEC).double().eval()
    points, values = torch.rand(1, 9, 2).double(), torch.randn(1, 9, 1).double()
    order = torch.randperm(9)
    out = model(Batch(points=points, values=values, queries=points))
    again = model(Batch(points=points[:, order], values=values[:, order], queries=points[:, order]))
    assert out.shape == (1, 1, 9, 2)
    torch.testing.assert_close(again, out[:, :, order])


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(Unsupported, match="heads"):
        Config(width=10, heads=4)
    with pytest.raises(Unsupported, match="latents"):
        Config(latents=0)
    with pytest.raises(Unsupported, match="input points"):
        FLARE(SMALL, Spec(name="apart", inputs=("a",), outputs=("u",), domain=((0.0, 1.0),)))
