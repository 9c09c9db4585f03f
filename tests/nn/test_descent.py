"""Descent that can be differentiated."""

import torch

from ipot.nn.descent import descend


def test_the_steps_are_those_of_adam():
    torch.manual_seed(0)
    target = torch.randn(3, 2).double()

    def error(x):
        return ((x - target) ** 4).sum()

    x = torch.nn.Parameter(torch.zeros(3, 2).double())
    optimizer = torch.optim.Adam([x], lr=0.1)
    for _ in range(20):
        optimizer.zero_grad()
        error(x).backward()
        optimizer.step()
    found = descend(error, torch.zeros(3, 2).double(), 20, 0.1)
    torch.testing.assert_close(found, x.detach(), atol=1e-6, rtol=1e-6)
    assert not found.requires_grad


def test_the_derivative_is_that_of_the_way_that_was_gone():
    """Against a difference of two descents, for the target that they run to."""

    def end(target):
        return descend(
            lambda x: ((x - target) ** 4).sum(),
            torch.zeros(2).double(),
            9,
            0.1,
            differentiable=True,
        ).sum()

    target = torch.tensor([0.6, -0.8], dtype=torch.float64, requires_grad=True)
    end(target).backward()
    along = torch.tensor([1.0, 2.0], dtype=torch.float64)
    slope = (end(target + 1e-6 * along) - end(target - 1e-6 * along)) / 2e-6
    torch.testing.assert_close(target.grad @ along, slope.detach(), rtol=1e-5, atol=1e-8)
    assert slope.abs() > 1e-3


def test_a_flat_error_leaves_the_start_where_it_is():
    slope = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    found = descend(
        lambda x: (x * slope).sum(), torch.ones(3).double(), 5, 0.1, differentiable=True
    )
    torch.testing.assert_close(found, torch.ones(3).double())
    found.sum().backward()
    assert slope.grad.isfinite().all()
