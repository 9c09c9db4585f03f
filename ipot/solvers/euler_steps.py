"""Local time steps, one for every kind of wave.

Sound crosses a flat cell in no time, and a step short enough for it moves entropy and the speed
along streamlines, which the flow merely carries, by a small part of the cell: such a wake takes
thousands of steps to reach the outflow. Here each has the step that its own speed allows, so that
all of them cross a cell alike. Steady states do not depend on it.

In the manner of block Jacobi preconditioning: Pierce and Giles, J. Comput. Phys. 136 (1997).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ipot.solvers import euler_flux, euler_grid
from ipot.solvers.euler_flux import GAMMA
from ipot.solvers.euler_grid import Grid

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
