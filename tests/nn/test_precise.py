"""Coordinates under autocast."""

import torch

from ipot.nn.precise import Precise


def test_neighbours_stay_apart_in_half_precision():
    layer = Precise(1, 4)
    near = torch.tensor([[0.5], [0.501]])
    with torch.autocast("cpu", torch.bfloat16):
        out, rounded = layer(near), torch.nn.functional.linear(near, layer.weight, layer.bias)
    assert torch.equal(rounded[0], rounded[1])
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, layer(near))
    assert (out[0] != out[1]).all()
