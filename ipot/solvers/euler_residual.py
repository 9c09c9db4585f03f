"""The discrete steady Euler equations on a C-mesh: what flows out of every dual cell.

Second order: least-squares gradients of primitive variables, states extrapolated to the middle of
edges and limited against the difference along the edge, Roe's flux. The wall passes pressure alone,
the far boundary lets waves out. First order without the extrapolation.

Conserved and primitive states are (4, B, I, J) throughout, component first.

Local time steps are one for each type of wave. Sound crosses a flat cell in no time, and a step
short enough for it moves entropy and the speed along streamlines, which the flow merely carries, by
a small part of the cell: such a wake takes thousands of steps to reach the outflow. Here each has
the step that its own speed allows, so that all of them cross a cell alike. Steady states do not
depend on it. In the manner of block Jacobi preconditioning: Pierce and Giles, J. Comput. Phys. 136
(1997).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ipot.solvers import euler_flux, euler_grid
from ipot.solvers.euler_flux import GAMMA, Limiter
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


# The part of the speed of sound that no step goes below: where the flow stands still, nothing
# else would bound it.
_SOUND = 0.1


class Steps:
    """Steps over volumes at a state; calling it turns residuals into changes of that state."""

    def __init__(self, conserved: Float[Tensor, "4 B I J"], grid: Grid, courant: float) -> None:
        density, u, v, p = euler_flux.primitive(conserved)
        square = GAMMA * p / density
        speed_squared = torch.addcmul(u * u, v, v)
        inverse_mach = (square / speed_squared.clamp(min=1e-3)).sqrt_()
        sums = torch.addcmul(u * grid.across[0], v, grid.across[1]).abs_()
        flow = euler_grid.merge(sums[0] + sums[1], grid.wake)
        sound = square.sqrt() * grid.girth
        # Along a streamline, sound travels through the faces that the flow goes through.
        stream = torch.minimum(flow * inverse_mach, sound)

        self.u, self.v, self.speed_squared = u, v, speed_squared
        self.inverse_square = square.reciprocal_()
        self.all = 2 * courant / (flow + sound)
        self.entropy = 2 * courant / torch.add(flow, sound, alpha=_SOUND) - self.all
        waves = torch.add(flow, stream, alpha=1 - _SOUND).add_(sound, alpha=_SOUND)
        slack = 2 * courant / waves - self.all
        self.stream = slack * grid.thin / speed_squared.clamp(min=1e-3)

    def __call__(self, residual: Float[Tensor, "4 B I J"]) -> Float[Tensor, "4 B I J"]:
        """All of it by the step of sound, and what is carried by the rest of its own step."""
        mass, mx, my, energy = residual
        u, v, kinetic = self.u, self.v, self.speed_squared / 2
        momentum = torch.addcmul(u * mx, v, my)
        pressure = (GAMMA - 1) * (torch.addcmul(energy - momentum, kinetic, mass))
        entropy = (mass - pressure * self.inverse_square) * self.entropy
        stream = (momentum - self.speed_squared * mass) * self.stream
        change = residual * self.all
        change[0] += entropy
        push = entropy + stream
        change[1].addcmul_(push, u)
        change[2].addcmul_(push, v)
        change[3].addcmul_(torch.add(entropy, stream, alpha=2), kinetic)
        return change
