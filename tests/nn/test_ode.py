"""One Runge-Kutta step."""

import pytest
import torch

from ipot.nn.ode import rk4


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
