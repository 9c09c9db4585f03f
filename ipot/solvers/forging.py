"""A metal block forged by a rigid die that comes down on it, in plane stress.

    ρ v' = div σ,   σ' = C : (D - Dp) turned with the material,   von Mises yield

The block is 50 mm x 15 mm and 1 mm thick; its bottom slides without friction and does not lift, its
sides are free, and the die goes down 6 mm in 2 ms. Explicit central differences in time, finite
elements in space. Belytschko, Liu and Moran, "Nonlinear Finite Elements" (2000), chapters 4 and 6.

The block is held by nothing but its inertia against sliding as a whole, so its mass is not free:
with 25 times the mass, which a quasi-static process would bear, displacements are 23 to 78 % off.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from ipot.device import captured
from ipot.solvers.forging_block import LENGTH, SPEED, Block, sound
from ipot.solvers.plane_stress import Metal

DURATION, FRAMES = 2.0, 20

# Energy that may appear from nowhere: a part of the work, and mJ where there is no work yet. Sound
# runs are within 0.1 %, or 1 % with a hundred times the mass.
_CREATED, _NOISE = 0.05, 1.0


class Lost(RuntimeError):
    """Samples that blew up, by more energy than the die put in; `samples` are their rows."""

    def __init__(self, samples: list[int], frame: int) -> None:
        super().__init__(
            f"samples {samples} blew up before frame {frame}: take shorter steps (courant)"
        )
        self.samples = samples


@dataclass(frozen=True)
class Forged:
    """Displacements at the frames, and where the work of the die went, in mJ."""

    displacement: Float[Tensor, "B n m T 2"]
    work: Float[Tensor, "B T"]
    elastic: Float[Tensor, "B T"]
    plastic: Float[Tensor, "B T"]
    kinetic: Float[Tensor, "B T"]

    @property
    def imbalance(self) -> Float[Tensor, " B"]:
        """The work at the last frame that is not found again, over all of it."""
        stored = self.elastic + self.plastic + self.kinetic
        return ((self.work - stored) / self.work)[:, -1]


def steps(nodes: int, metal: Metal, *, mass_scaling: float, courant: float) -> int:
    """Steps of time from a frame to the next, the same for all dies."""
    longest = courant * LENGTH / (nodes - 1) / sound(metal, mass_scaling)
    return math.ceil(DURATION / FRAMES / longest)


@torch.no_grad()
def solve(
    die: Float[Tensor, "B n"],
    *,
    metal: Metal | None = None,
    mass_scaling: float = 1.0,
    courant: float = 0.7,
    progress: Callable[[float], None] | None = None,
) -> Forged:
    """Forge a block of n nodes along x by each die, given as heights in mm above the n nodes.

    Frames are at 0, 1/20, ... 19/20 of the 2 ms. `mass_scaling` multiplies the density, which makes
    steps longer by its root and the block slower to slide. `courant` is the step over the time in
    which sound crosses a cell that is not yet squeezed. All in the dtype of `die`.
    """
    metal = metal or Metal()
    nodes = die.shape[1]
    count = steps(nodes, metal, mass_scaling=mass_scaling, courant=courant)
    block = Block(die, metal, mass_scaling, DURATION / FRAMES / count)
    if inside := block.inside():
        raise ValueError(f"a die must start above the block, at y > 14.9; samples {inside} do not")
    step = captured(block.step, block.state)
    moved, energies = [block.displacement()], [block.energies()]
    for frame in range(1, FRAMES):
        block.descent.fill_(SPEED * DURATION * (frame - 1) / FRAMES)
        for _ in range(count):
            step()
        moved.append(block.displacement())
        energies.append(block.energies())
        if lost := _lost(energies[-1]):
            raise Lost(lost, frame)
        if progress is not None:
            progress(frame / (FRAMES - 1))
    return Forged(torch.stack(moved, 3), *torch.stack(energies, -1))


def _lost(energies: Float[Tensor, "4 B"]) -> list[int]:
    """Samples that hold more energy than the work done on them; NaN counts as that."""
    work, *stored = energies
    fine = sum(stored) <= work * (1 + _CREATED) + _NOISE
    return (~fine).nonzero().flatten().tolist()
