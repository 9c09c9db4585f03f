"""The plain network: what stands behind which layer."""

import pytest
import torch
from torch import nn

from ipot.nn.mlp import MLP, Precise


@pytest.mark.parametrize(("norm", "last", "bias"), [(False, False, True), (True, True, False)])
def test_layers_stand_in_order(norm, last, bias):
    torch.manual_seed(0)
    found = MLP((3, 5, 4), activation="tanh", norm=norm, bias=bias, activate_last=last)
    x = torch.randn(7, 3)
    dense = [m for m in found.modules() if isinstance(m, nn.Linear)]
    assert [m.bias is not None for m in dense] == [bias, bias]
    expected = dense[1](dense[0](x).tanh())
    expected = expected.tanh() if last else expected
    expected = nn.functional.layer_norm(expected, (4,)) if norm else expected
    torch.testing.assert_close(found(x), expected)


def test_identity_activations_make_a_linear_map():
    torch.manual_seed(0)
    found = MLP((3, 5, 2), activation="identity", bias=False)
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    torch.testing.assert_close(found(2 * x - y), 2 * found(x) - found(y))


@pytest.mark.parametrize("sizes", [(3,), (), (3, 0, 1)])
def test_nonsense_is_refused(sizes):
    with pytest.raises(ValueError, match="two sizes at least"):
        MLP(sizes)


def test_the_slope_of_a_swish_is_learnt():
    found, x = MLP((3, 3, 3), activation="swish"), torch.randn(5, 3)
    first, middle, last = found.layers
    hidden = first(x)
    expected = last(hidden * torch.sigmoid(hidden * 0.974076984) / 1.1)  # log(1 + √e)
    torch.testing.assert_close(found(x), expected)
    found(x).sum().backward()
    assert middle.slope.grad != 0


def test_neighbours_stay_apart_in_half_precision():
    layer = Precise(1, 4)
    near = torch.tensor([[0.5], [0.501]])
    with torch.autocast("cpu", torch.bfloat16):
        out, rounded = layer(near), torch.nn.functional.linear(near, layer.weight, layer.bias)
    assert torch.equal(rounded[0], rounded[1])
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, layer(near))
    assert (out[0] != out[1]).all()
