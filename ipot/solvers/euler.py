"""Steady flow of a perfect gas around an airfoil: the compressible Euler equations.

    ∇·(ρ v) = 0,   ∇·(ρ v ⊗ v + p I) = 0,   ∇·((E + p) v) = 0,   E = p / (γ - 1) + ρ |v|² / 2

No flow through the wall; far away ρ = p = 1 and the flow comes along x at a given Mach number.
Vertex-centred finite volumes on a C-mesh (`euler_grid`, `euler_residual`), solved by multigrid
(`euler_multigrid`). The scheme is that of Li, Huang, Liu and Anandkumar, "Fourier neural operator
with learned deformations for PDEs on general geometries" (2023), who stepped it in time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from ipot.device import captured
from ipot.solvers import euler_flux, euler_grid
from ipot.solvers.euler_flux import GAMMA, Limiter
from ipot.solvers.euler_multigrid import Hierarchy, Settings

EVERY = 20
"""Cycles from one measurement of convergence to the next."""

_START = 50  # smoothing steps on every mesh before the first cycle
# A batch is made smaller once this part of it is left: on a GPU that means a new capture.
_COMPACT = 0.6
# Quick cycles leave some noise where cells are large, and may drive a shock to and fro: shorter
# steps, smaller corrections and more smoothing calm both.
_CALM = {"courant": 1.2, "relax": 0.5, "after": 4}


class NoFlow(RuntimeError):
    """Density or pressure vanished; `samples` says in which samples of the batch."""

    def __init__(self, samples: list[int]) -> None:
        super().__init__(f"density or pressure vanished on the way in samples {samples}")
        self.samples = samples


@dataclass(frozen=True)
class Solution:
    """Flows at the nodes of their meshes."""

    state: Float[Tensor, "B 4 I J"]
    """Density, velocity along x and y, pressure."""
    change: Float[Tensor, " B"]
    """How far the Mach number moved in the last cycles, relative to its norm over the nodes."""
    lift: Float[Tensor, " B"]
    drag: Float[Tensor, " B"]

    @property
    def mach(self) -> Float[Tensor, "B I J"]:
        """Speed over the speed of sound."""
        return euler_flux.mach(self.state.movedim(1, 0))


@torch.no_grad()
def solve(
    mesh: Float[Tensor, "B I J 2"],
    *,
    mach: float = 0.8,
    limiter: Limiter = "minmod",
    tolerance: float = 2e-4,
    cycles: int = 240,
    dtype: torch.dtype = torch.float32,
    progress: Callable[[float], None] | None = None,
) -> Solution:
    """The flow around every airfoil.

    A sample goes through at most `cycles` quick cycles and then as many calm ones; it is done with
    either, and left alone, when `EVERY` of them change its Mach number by less than `tolerance`.
    Its `change` says how far it got. Coordinates should be float64, whatever `dtype` the flow is
    computed in: cells are thin compared with their distance. `progress` is told which part of the
    cycles is done, from 0 to 1; a flow that settles early jumps.
    """
    progress = progress or (lambda part: None)
    outside = free_stream(mach, dtype, mesh.device)
    quick, calm = Settings(limiter=limiter), Settings(limiter=limiter, **_CALM)
    state = _first_guess(mesh, outside, quick, _START)
    _march(state, mesh, outside, quick, cycles, tolerance, lambda part: progress(part / 2))
    broken = (~_physical(state)).nonzero().flatten()
    if len(broken):
        gentle = replace(calm, courant=0.5)
        state[:, broken] = _first_guess(mesh[broken], outside, gentle, 4 * _START)
    change = _march(
        state, mesh, outside, calm, cycles, tolerance, lambda part: progress(0.5 + part / 2)
    )
    failed = (~_physical(state)).nonzero().flatten().tolist()
    if failed:
        raise NoFlow(failed)
    return _solution(state, mesh, change, mach)


def free_stream(
    mach: float, dtype: torch.dtype, device: torch.device | None = None
) -> Float[Tensor, "4 1 1"]:
    """The conserved state far away."""
    speed = mach * math.sqrt(GAMMA)
    state = torch.tensor([1.0, speed, 0.0, 1.0], dtype=torch.float64, device=device)
    return euler_flux.conserved(state).to(dtype).view(4, 1, 1)


def _first_guess(mesh: Tensor, outside: Tensor, settings: Settings, steps: int) -> Tensor:
    hierarchy = Hierarchy(mesh, outside, settings)
    hierarchy.start(steps, captured)
    return hierarchy.state


def _march(
    state: Tensor,
    mesh: Tensor,
    outside: Tensor,
    settings: Settings,
    cycles: int,
    tolerance: float,
    progress: Callable[[float], None],
) -> Tensor:
    """Advance states in place, each until it settles; return the last change of each."""
    change = outside.new_full((len(mesh),), math.inf)
    left = torch.arange(len(mesh), device=mesh.device)
    batch: _Batch | None = None
    for done in range(0, cycles, EVERY):
        if not len(left):
            break
        progress(done / cycles)
        if batch is None or len(left) <= _COMPACT * len(batch.rows):
            batch = None  # makes room for the next
            batch = _Batch(left, state, mesh, outside, settings)
        moved = batch.advance()
        here = torch.isin(batch.rows, left)
        state[:, left] = batch.hierarchy.state[:, here]
        change[left] = moved[here]
        # A flow that broke down has no change to compare, and drops out as well.
        left = left[change[left] > tolerance]
    return change


class _Batch:
    """Flows on their way together."""

    def __init__(
        self, rows: Tensor, state: Tensor, mesh: Tensor, outside: Tensor, settings: Settings
    ) -> None:
        self.rows = rows
        self.hierarchy = Hierarchy(mesh[rows], outside, settings)
        self.hierarchy.state.copy_(state[:, rows])
        self.cycle = captured(self.hierarchy.cycle, [self.hierarchy.state], rehearsals=1)
        self.mach = self._mach()

    def advance(self) -> Tensor:
        """Some cycles; the change of the Mach number of every flow, relative to its norm."""
        for _ in range(EVERY):
            self.cycle()
        before, self.mach = self.mach, self._mach()
        return (self.mach - before).flatten(1).norm(dim=1) / self.mach.flatten(1).norm(dim=1)

    def _mach(self) -> Tensor:
        return euler_flux.mach(euler_flux.primitive(self.hierarchy.state))


def _physical(state: Tensor) -> Tensor:
    """Which samples have density and pressure everywhere, above what iterates are held at."""
    least = euler_flux.primitive(state)[0::3].amin((0, 2, 3))
    return least.isfinite() & (least > euler_flux.LEAST)


def _solution(state: Tensor, mesh: Tensor, change: Tensor, mach: float) -> Solution:
    """With the force of the pressure on the wall, over dynamic pressure and chord."""
    grid, flow = euler_grid.build(mesh, torch.float64), euler_flux.primitive(state)
    force = (grid.wall * flow[3, :, grid.body, 0]).sum(-1) / (GAMMA / 2 * mach**2)
    drag, lift = force
    return Solution(state=flow.movedim(0, 1).contiguous(), change=change, lift=lift, drag=drag)
