"""Toy weather: anomalies of temperature, carried and stirred by winds on the sphere.

    A_t + u·∇(A + C) = κ ΔA - A / τ,    u = k x ∇ψ

A background C whose gradient feeds the anomalies, winds given by a stream function ψ, a lifetime τ
that may differ from place to place. Lengths are in radii of the Earth, times in days. Spectral on
the transforms of `sphere`, products free of aliasing; classical Runge-Kutta, with the winds given
at both ends and in the middle of every step. The winds are prescribed, so nothing here is chaotic:
this is a stand-in for weather, not a model of it.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Complex, Float
from torch import Tensor

from ipot.device import captured
from ipot.solvers.sphere import Transform


def transform(degree: int, device: torch.device | None = None) -> Transform:
    """Waves up to a degree, on a grid fine enough for their products."""
    rows = 3 * degree // 2 + 1
    return Transform(degree, rows + rows % 2, device=device)


def steps_per_day(degree: int) -> int:
    """Enough for winds of 60 m/s: Runge-Kutta bears 2.8 radians of the shortest wave a step."""
    return math.ceil(degree * 60 * 86400 / 6.371e6 / 2.8)


class Air:
    """The anomalies of several members, and what it takes to advance them by a day in place.

    Everything a day reads or writes stays at one address, so that on a GPU all its steps are
    captured as one graph: the grids are small and bound by kernel launches.
    """

    def __init__(
        self,
        sphere: Transform,
        members: int,
        *,
        steps: int,
        diffusion: float = 0.0,
        damping: float | Float[Tensor, "rows columns"] = 0.0,
    ) -> None:
        """`diffusion` is κ in radii² per day, `damping` 1 / τ per day."""
        self.sphere, self.dt = sphere, 1 / steps
        like = sphere.laplacian
        waves, grid = (sphere.lmax + 1,) * 2, (sphere.rows, sphere.columns)
        self.state = torch.zeros(members, *waves, dtype=torch.complex128, device=like.device)
        self.background = torch.zeros_like(self.state)
        self.east, self.north = (like.new_zeros(2 * steps + 1, members, *grid) for _ in range(2))
        self.diffusion = (diffusion * like).expand(waves)
        self.damping = torch.as_tensor(damping, dtype=like.dtype, device=like.device).expand(grid)
        self._day = captured(self._steps, [self.state])

    @torch.no_grad()
    def advance(
        self,
        stream: Complex[Tensor, "stages members m l"],
        background: Complex[Tensor, "members m l"],
    ) -> None:
        """One day, with ψ at 2 steps + 1 equally spaced times and the background held."""
        vorticity = self.sphere.laplacian * stream
        east, north = self.sphere.velocity(vorticity, torch.zeros_like(vorticity))
        self.east.copy_(east)
        self.north.copy_(north)
        self.background.copy_(background)
        self._day()

    def _rate(self, a: Tensor, stage: int) -> Tensor:
        """dA/dt with the winds of a stage."""
        d_east, d_north = self.sphere.gradient(a + self.background)
        change = self.east[stage] * d_east + self.north[stage] * d_north
        change = change + self.damping * self.sphere.synthesis(a)
        return self.diffusion * a - self.sphere.analysis(change)

    def _steps(self) -> None:
        """A day of classical Runge-Kutta."""
        dt = self.dt
        for stage in range(0, len(self.east) - 1, 2):
            a = self._rate(self.state, stage)
            b = self._rate(self.state + dt / 2 * a, stage + 1)
            c = self._rate(self.state + dt / 2 * b, stage + 1)
            d = self._rate(self.state + dt * c, stage + 2)
            self.state += dt / 6 * (a + 2 * (b + c) + d)
