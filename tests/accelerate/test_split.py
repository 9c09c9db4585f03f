"""Tokens in two parts are projected as if they were one."""

import pytest
import torch
from ipot.nn.folded import Known
from ipot.nn.split import Split, project, sums_of
from torch import nn


@pytest.mark.parametrize("channels", [1, 3, 20])
@pytest.mark.parametrize("bias", [False, True])
def test_projection_equals_that_of_the_joined_tokens(channels, bias):
    torch.manual_seed(0)
    norm = nn.LayerNorm(30 + channels, dtype=torch.float64)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    linear = nn.Linear(30 + channels, 8, bias=bias, dtype=torch.float64)
    position = torch.randn(1, 11, 30, dtype=torch.float64)
    value = 5 + 10 * torch.randn(4, 11, channels, dtype=torch.float64)
    tokens = Split(position, value)
    parameters = [*norm.parameters(), *linear.parameters()]
    weight = torch.randn(4, 11, 8, dtype=torch.float64)

    results = []
    for out in (project(tokens, norm, linear), linear(norm(tokens.joined()))):
        results.append([out, *torch.autograd.grad((out * weight).sum(), parameters)])
    for split, joined in zip(*results, strict=True):
        torch.testing.assert_close(split, joined, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("trained", [False, True])
def test_what_is_kept_of_the_positions_is_taken_as_it_is(trained):
    torch.manual_seed(0)
    norm, linear = nn.LayerNorm(33), nn.Linear(33, 8)
    position, value = torch.randn(1, 11, 30), torch.randn(4, 11, 3)
    known = Known(position, position.clone(), position, sums_of(position))
    with torch.set_grad_enabled(trained):
        expected = project(Split(position, value), norm, linear)
        assert torch.equal(project(Split(position, value, known), norm, linear), expected)
        for name in ("operand", "sums"):
            other = known._replace(**{name: 2 * getattr(known, name)})
            assert not torch.allclose(
                project(Split(position, value, other), norm, linear), expected
            )


def test_layers_with_hooks_are_called_as_modules():
    norm, linear = nn.LayerNorm(33), nn.Linear(33, 8)
    tokens, seen = Split(torch.randn(1, 11, 30), torch.randn(4, 11, 3)), []
    expected = project(tokens, norm, linear)
    for layer in (norm, linear):
        layer.register_forward_hook(lambda module, given, out: seen.append(module))
    torch.testing.assert_close(project(tokens, norm, linear), expected)
    assert seen == [norm, linear]


def test_large_values_cancel_little():
    """Kelvin beside features of order one, in float32."""
    torch.manual_seed(0)
    norm, linear = nn.LayerNorm(265), nn.Linear(265, 64, bias=False)
    tokens = Split(torch.randn(1, 50, 258), 280 + 10 * torch.randn(3, 50, 7))
    exact = linear.double()(norm.double()(tokens.joined().double()))
    out = project(tokens, norm.float(), linear.float())
    assert (out - exact).norm() / exact.norm() < 1e-6


def test_parts_are_kept_apart_only_where_a_mesh_is_shared():
    def split(one, other):
        return Split(torch.zeros(one, 5, 2), torch.zeros(other, 5, 1))

    assert split(1, 3).shared
    assert not split(1, 1).shared
    assert not split(3, 3).shared


def test_a_shift_alone_is_learnt_as_well():
    torch.manual_seed(0)
    norm, linear = nn.LayerNorm(31), nn.Linear(31, 8, bias=False)
    norm.weight.requires_grad_(False)
    linear.requires_grad_(False)
    tokens = Split(torch.randn(1, 11, 30), torch.randn(4, 11, 1))
    project(tokens, norm, linear).sum().backward()
    found, norm.bias.grad = norm.bias.grad, None
    linear(norm(tokens.joined())).sum().backward()
    torch.testing.assert_close(found, norm.bias.grad)
