"""A rigid die without friction, and the nodes that it pushes.

The profile is a piecewise cubic of one continuous derivative, so that the normal does not jump, and
goes on straight beyond its ends. A node above the profile is put back along the normal: no penalty
stiffness, hence no parameter and no limit on the step.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor


class Die:
    """Heights at equally spaced places, counted from `origin` towards negative x."""

    def __init__(self, heights: Float[Tensor, "B n"], spacing: float, origin: float) -> None:
        self.spacing, self.origin = spacing, origin
        (slope,) = torch.gradient(heights, dim=-1, edge_order=2)
        y0, y1, s0, s1 = heights[:, :-1], heights[:, 1:], slope[:, :-1], slope[:, 1:]
        rise = y1 - y0
        cubic = torch.stack((y0, s0, 3 * rise - 2 * s0 - s1, s0 + s1 - 2 * rise), -1)
        self.cubic = cubic.contiguous()  # (B, n - 1, 4): powers of the place within a cell

    def at(self, x: Float[Tensor, "B K"]) -> tuple[Float[Tensor, "B K"], Float[Tensor, "B K"]]:
        """Height and slope dy/dx of the profile where it starts."""
        place = (self.origin - x) / self.spacing
        cell = place.floor().clamp(0, self.cubic.shape[1] - 1)
        beyond = place - cell
        within = beyond.clamp(0, 1)
        index = cell.long().unsqueeze(-1).expand(-1, -1, 4)
        c0, c1, c2, c3 = self.cubic.gather(1, index).unbind(-1)
        slope = torch.addcmul(c1, within, torch.addcmul(2 * c2, within, c3, value=3))
        height = torch.addcmul(c1, within, torch.addcmul(c2, within, c3))
        height = torch.addcmul(c0, within, height).addcmul_(slope, beyond - within)
        return height, slope / -self.spacing

    def push(
        self, places: Float[Tensor, "xy B K"], descent: Float[Tensor, ""]
    ) -> Float[Tensor, "xy B K"]:
        """How far points must move to lie on or below the die, lowered by `descent`."""
        x, y = places
        height, slope = self.at(x)
        depth = (y - height + descent).clamp_min_(0) / (slope.square() + 1)
        return torch.stack((depth * slope, -depth))
