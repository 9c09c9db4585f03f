"""The discrete steady Euler equations on a C-mesh: what flows out of every dual cell.

Second order: least-squares gradients of primitive variables, states extrapolated to the middle of
edges and limited against the difference along the edge, Roe's flux. The wall passes pressure alone,
the far boundary lets waves out. First order without the extrapolation.

Conserved and primitive states are (4, B, I, J) throughout, component first.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ipot.solvers import euler_flux, euler_grid
from ipot.solvers.euler_flux import Limiter
from ipot.solvers.euler_grid import Grid

# The part of the extrapolation that comes from the edge itself: one third makes it third-order in
# one dimension. b = (1 - 4β) difference + 4β gradient, with β = 1/3.
_EDGE, _GRADIENT = -1 / 3, 4 / 3


def outflow(
    conserved: Float[Tensor, "4 B I J"],
    grid: Grid,
    outside: Float[Tensor, "4 1 1"],
    limiter: Limiter | None,
) -> Float[Tensor, "4 B I J"]:
    """What leaves every cell; both copies of a wake node hold the sum of its two sides.

    `outside` is the conserved state of the far field. No limiter means first order.
    """
    state = euler_flux.primitive(conserved)
    flux = euler_flux.roe(_sides(state, grid, limiter), grid.normal, grid.area)
    sums = flux[:, 0] + flux[:, 1]
    sums[:, :, 1:] -= flux[:, 0, :, :-1]
    sums[..., 1:] -= flux[:, 1, ..., :-1]
    sums[1:3, :, grid.body, 0] += grid.wall * state[3, :, grid.body, 0]
    far = euler_flux.steger_warming(euler_grid.boundary(state), outside, grid.far)
    euler_grid.add_boundary(sums, far)
    return euler_grid.merge(sums, grid.wake)


def _sides(
    state: Float[Tensor, "4 B I J"], grid: Grid, limiter: Limiter | None
) -> Float[Tensor, "2 4 2 B I J"]:
    """The states on both sides of every face."""
    sides = state.new_empty(2, 4, 2, *state.shape[1:])
    here, there = sides
    here.copy_(state.unsqueeze(1))
    there.copy_(here)
    there[:, 0, :, :-1] = state[:, :, 1:]
    there[:, 1, ..., :-1] = state[..., 1:]
    if limiter is None:
        return sides
    jump = there - here
    gradient = _gradient(jump, grid)
    dx, dy = grid.edge
    slope = torch.empty_like(sides)
    torch.addcmul(gradient[:, 0:1] * dx, gradient[:, 1:2], dy, out=slope[0])
    # At the neighbour: the same edge, the gradient there. Empty edges have no jump to extrapolate.
    slope[1].zero_()
    gx, gy = gradient.unbind(1)
    torch.addcmul(
        gx[:, :, 1:] * dx[0, :, :-1], gy[:, :, 1:], dy[0, :, :-1], out=slope[1, :, 0, :, :-1]
    )
    torch.addcmul(
        gx[..., 1:] * dx[1, ..., :-1], gy[..., 1:], dy[1, ..., :-1], out=slope[1, :, 1, ..., :-1]
    )
    slope.mul_(_GRADIENT).add_(jump, alpha=_EDGE)
    slope = euler_flux.limited(jump, slope, limiter)
    here.add_(slope[0], alpha=0.5)
    there.sub_(slope[1], alpha=0.5)
    return sides


def _gradient(jump: Float[Tensor, "4 2 B I J"], grid: Grid) -> Float[Tensor, "4 2 B I J"]:
    """Gradients (x and y) at the nodes, from the differences along edges."""
    along, out = jump[:, 0:1], jump[:, 1:2]
    gradient = torch.addcmul(along * grid.slopes[0], out, grid.slopes[2])
    gradient[..., 1:, :].addcmul_(along[..., :-1, :], grid.slopes[1, ..., 1:, :])
    gradient[..., 1:].addcmul_(out[..., :-1], grid.slopes[3, ..., 1:])
    return euler_grid.merge(gradient, grid.wake)
