"""Gradient descent as a function, which may itself be differentiated."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def descend(
    error: Callable[[Tensor], Tensor],
    start: Tensor,
    steps: int,
    rate: float,
    *,
    differentiable: bool = False,
) -> Tensor:
    """Where Adam comes to from a start, with usual moments, as a function of what `error` sees."""
    fast, slow, tiny = 0.9, 0.999, 1e-8
    x = start.requires_grad_()
    mean, square = torch.zeros_like(start), torch.zeros_like(start)
    for step in range(1, steps + 1):
        (slope,) = torch.autograd.grad(error(x), x, create_graph=differentiable)
        mean = fast * mean + (1 - fast) * slope
        square = slow * square + (1 - slow) * slope.square()
        # The small number stands below the root, which has no derivative at zero.
        size = (square / (1 - slow**step) + tiny**2).sqrt()
        x = x - rate / (1 - fast**step) * mean / size
        if not differentiable:
            x = x.detach().requires_grad_()
    return x if differentiable else x.detach()
