"""One step of an ordinary differential equation."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor


def rk4(slope: Callable[[Tensor], Tensor], state: Tensor, step: float = 1.0) -> Tensor:
    """The state of dy/dt = slope(y) a step later, by the classical method of order four."""
    first = slope(state)
    second = slope(state + step / 2 * first)
    third = slope(state + step / 2 * second)
    fourth = slope(state + step * third)
    return state + step / 6 * (first + 2 * second + 2 * third + fourth)
