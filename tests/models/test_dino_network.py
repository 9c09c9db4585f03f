"""A filter network with a code."""

import math

import numpy as np
import pytest
import torch

from ipot.models.dino import FourierNet


def network(dimension=2, **changes):
    torch.manual_seed(0)
    sizes = {"code": 3, "width": 6, "layers": 2, "scale": 5.0}
    return FourierNet(dimension, **sizes | changes).double()


def by_hand(net, x, code):
    """The published formula for one point and one code, number by number."""
    w = {name: p.detach().numpy() for name, p in net.named_parameters()}
    scale, z = 5.0 / math.sqrt(3), None
    for layer in range(3):
        phase = scale * w["frequencies"][layer] @ x
        wave = np.concatenate([np.sin(phase), np.cos(phase)])
        shift = w[f"shifts.{layer}.weight"] @ code
        if z is None:
            z = wave * (shift + w["first"])
        else:
            before = w[f"layers.{layer - 1}.weight"] @ z + w[f"layers.{layer - 1}.bias"]
            z = wave * (before + shift)
    return (w["out.weight"] @ z + w["out.bias"]).item()


def test_the_field_is_the_formula():
    net, x, codes = network(), torch.rand(2, 4, 2).double(), torch.randn(2, 3, 3).double()
    out = net(net.filters(x), codes)
    assert out.shape == (2, 4, 3)
    for b, m, k in np.ndindex(2, 4, 3):
        expected = by_hand(net, x[b, m].numpy(), codes[b, k].numpy())
        assert out[b, m, k].item() == pytest.approx(expected, abs=1e-12)


def test_filters_of_a_shared_mesh_serve_all_codes():
    net, x, codes = network(), torch.rand(1, 5, 2).double(), torch.randn(4, 2, 3).double()
    assert all(f.shape == (1, 5, 6) for f in net.filters(x))
    each = net(net.filters(x.expand(4, -1, -1)), codes)
    torch.testing.assert_close(net(net.filters(x), codes), each)


def test_the_field_is_made_of_sums_and_differences_of_its_frequencies():
    """Which is what a product of two waves is; nothing else may enter, whatever the code."""
    net = network(1, layers=1, width=4)
    first, second = (net.scale * net.frequencies.detach()).squeeze(-1)
    products = [second + f for f in first] + [second - f for f in first]
    waves = torch.cat([second, *products])
    x = torch.linspace(-3, 3, 200, dtype=torch.float64)
    phase = x[:, None] * waves
    basis = torch.cat([phase.sin(), phase.cos(), torch.ones(200, 1).double()], -1)
    field = net(net.filters(x.view(1, -1, 1)), torch.randn(1, 1, 3).double()).detach()[0]
    best = basis @ torch.linalg.lstsq(basis, field, driver="gelsd").solution
    assert field.std() > 0.01
    assert (best - field).norm() < 1e-8 * field.norm()
    fewer = torch.cat([phase[:, :2].sin(), phase[:, :2].cos()], -1)
    rest = fewer @ torch.linalg.lstsq(fewer, field).solution - field
    assert rest.norm() > 0.05 * field.norm()  # without the products it cannot be told


@pytest.mark.parametrize("layers", [1, 8])
def test_the_first_frequencies_fill_their_range(layers):
    net = network(2, layers=layers, width=64, scale=30.0)
    largest = (net.scale * net.frequencies).abs().max().item()
    bound = 30 / math.sqrt(2 * (layers + 1))
    assert 0.9 * bound < largest <= bound


def test_phases_are_not_rounded_under_autocast():
    net, x = network().float(), 50 * torch.rand(1, 7, 2)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = net.filters(x)
    assert all(torch.equal(a, b) for a, b in zip(rounded, net.filters(x), strict=True))


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="7 is odd"):
        network(width=7)
    with pytest.raises(ValueError, match="must have 2 coordinates, got 3"):
        network().filters(torch.rand(1, 4, 3).double())
