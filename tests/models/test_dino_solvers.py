"""Descent that can be differentiated."""

import pytest
import torch

from ipot.models.dino import descend, rk4


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


def error(steps):
    """Of dy/dt = -y² from y = 1 to t = 1, where y = 1 / (1 + t), in so many steps."""
    y = torch.ones((), dtype=torch.float64)
    for _ in range(steps):
        y = rk4(lambda y: -(y**2), y, 1 / steps)
    return abs(y.item() - 0.5)


def test_the_order_is_four():
    assert error(8) / error(16) == pytest.approx(2**4, rel=0.1)
    assert error(16) / error(32) == pytest.approx(2**4, rel=0.05)


def test_a_cubic_in_time_is_exact():
    """The time as a component of the state: dy/dt = 3 t², dt/dt = 1."""
    start = torch.tensor([2.0, 0.5], dtype=torch.float64)
    end = rk4(lambda s: torch.stack([3 * s[1] ** 2, torch.ones_like(s[1])]), start, 0.7)
    torch.testing.assert_close(end, torch.tensor([2 + 1.2**3 - 0.5**3, 1.2]).double())
