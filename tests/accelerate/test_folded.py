"""Layers folded around what stays the same give what they give one by one."""

import pytest
import torch
from torch import nn

from ipot.accelerate.fixed_mesh import ALIGNED, Known, operand_of, product_dtype, project_folded

CPU = torch.device("cpu")


def layers(width=13, out=5, *, bias=False, dtype=torch.float64):
    torch.manual_seed(0)
    norm, linear = nn.LayerNorm(width, dtype=dtype), nn.Linear(width, out, bias=bias, dtype=dtype)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm, linear


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("width", [7, 8, 13])
def test_the_folded_projection_and_its_gradients_are_those_of_the_layers(width, bias):
    norm, linear = layers(width, bias=bias)
    norm.eps = 0.1
    features = 2 + 3 * torch.randn(1, 11, width, dtype=torch.float64)
    operand, towards = operand_of(features, norm.eps), torch.randn(1, 11, 5, dtype=torch.float64)
    assert operand.shape[-1] % ALIGNED == 0
    parameters, results = [*norm.parameters(), *linear.parameters()], []
    for out in (project_folded(operand, norm, linear), linear(norm(features))):
        results.append([out, *torch.autograd.grad((out * towards).sum(), parameters)])
    for folded, plain in zip(*results, strict=True):
        torch.testing.assert_close(folded, plain, rtol=1e-10, atol=1e-10)


def test_nothing_but_products_goes_over_the_rows():
    """Backward one product for the weight, and no sum over the rows for the offset."""
    norm, linear = layers(bias=True)
    rows = 1000
    operand = operand_of(torch.randn(1, rows, 13, dtype=torch.float64), norm.eps)
    out = project_folded(operand, norm, linear)
    with torch.profiler.profile(record_shapes=True) as profile:
        out.backward(torch.ones_like(out))
    large = {
        event.name
        for event in profile.events()
        if any(isinstance(shape, list) and rows in shape for shape in event.input_shapes)
    }
    assert "aten::mm" in large
    assert not any(name in large for name in ("aten::sum", "aten::native_layer_norm_backward"))


def test_under_autocast_it_is_as_exact_as_the_layers():
    norm, linear = layers(130, 64, dtype=torch.float32)
    features = torch.randn(1, 500, 130)
    exact = linear(norm(features))
    with torch.autocast("cpu", torch.bfloat16):
        plain = linear(norm(features))
        folded = project_folded(operand_of(features, norm.eps).bfloat16(), norm, linear)
    assert folded.dtype == torch.bfloat16
    plain, folded = ((out - exact).norm() / exact.norm() for out in (plain, folded))
    assert folded < 1.2 * plain < 0.01


def test_the_precision_of_a_product():
    assert product_dtype(torch.float32, CPU) == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert product_dtype(torch.float32, CPU) == torch.bfloat16
        linear = nn.Linear(2, 2, dtype=torch.float64)
        exact = linear(torch.ones(1, 2, dtype=torch.float64)).dtype
        assert product_dtype(torch.float64, CPU) == exact == torch.float64
        with torch.autocast("cpu", enabled=False):
            assert product_dtype(torch.float32, CPU) == torch.float32


def test_numbers_are_taken_over_in_place():
    old = Known(torch.zeros(1, 2, 1), torch.zeros(1, 2, 3).bfloat16(), sums=torch.zeros(1, 2, 2))
    new = Known(torch.zeros(1, 2, 1), torch.full((1, 2, 3), 1.5), sums=torch.full((1, 2, 2), 2.5))
    places = old.operand.data_ptr(), old.sums.data_ptr()
    old.copy_(new)
    assert places == (old.operand.data_ptr(), old.sums.data_ptr())
    assert old.operand.dtype == torch.bfloat16
    assert old.operand.unique().tolist() == [1.5]
    assert old.sums.unique().tolist() == [2.5]
