"""Plastic forging: a die comes down on a block of metal, and the block flows.

    ρ u'' = div σ   for an elastic, perfectly plastic metal in plane stress

A block of 50 mm x 15 mm, without friction at its bottom, under a rigid die that goes down 6 mm in
2 ms. The die's profile to where every node of the mesh is at 20 times. A profile is a natural cubic
spline through seven random heights, 6.25 mm apart, and two ends that stand 7.5 mm above its lowest
point. Li, Huang, Liu and Anandkumar, "Fourier neural operator with learned deformations", 2023.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.interpolate import CubicSpline
from torch import Tensor

from ipot.data import published, readers
from ipot.data.dataset import Stacked
from ipot.data.store import Fields
from ipot.errors import DataError
from ipot.problems.base import Problem
from ipot.samples import Batch
from ipot.seeds import generator
from ipot.solvers import forging, forging_block
from ipot.solvers.plane_stress import Metal
from ipot.spec import Need, Spec

KNOTS = 9
SPREAD = 7.7  # mm: heights at the seven inner knots
ENDS = 7.5  # mm above the lowest point
COARSEST = 21
HEAVIEST = 1000.0
LOWEST = 15.0  # mm: just above the block
TOLERANCE = 0.01  # mm: places and displacements of a file, in single precision or printed
_FINE = 801  # points to look for the lowest one, so that it does not depend on the mesh
_ROUNDS = 20  # for the ends to settle: ten leave 1e-9 mm


@dataclass(frozen=True, kw_only=True)
class Plasticity(Problem):
    """The profile of a die in, the forged block at 20 times out."""

    name: ClassVar[str] = "plasticity"
    about: ClassVar[str] = "forging of a metal block: the die's profile to the deforming mesh"
    source: ClassVar[str] = "explicit finite elements on 100 x 30 cells, plane stress, rigid die"
    sizes: ClassVar[Mapping[str, int]] = {"train": 900, "validation": 80, "test": 80}
    piece: ClassVar[int] = 100
    views: ClassVar[tuple[str, ...]] = ("repeated",)
    published: ClassVar[tuple[str, ...]] = ("plas_N987_T20.mat",)
    reduced: ClassVar[Mapping[str, Any]] = {"size": 21, "mass_scaling": 100.0}

    size: int = 101
    """Nodes along the block: 10 k + 1, with 3 k + 1 across."""
    hardening: float = 0.0
    """The plastic modulus in MPa; 0 is perfect plasticity."""
    mass_scaling: float = 1.0
    """How much heavier the metal is made, which makes steps longer by the root of that."""
    repeated: bool = False
    """Give the die at every query, as in the paper, and not once along a line."""

    def __post_init__(self) -> None:
        if not 0 <= self.hardening < math.inf:
            raise DataError(f"hardening must be finite and not negative, got {self.hardening}")
        if not 0 < self.mass_scaling <= HEAVIEST:
            raise DataError(
                f"mass_scaling must be positive and at most {HEAVIEST:g}: beyond, inertia rules; "
                f"got {self.mass_scaling}"
            )

    @property
    def grid(self) -> tuple[int, int, int]:
        """Nodes along the block and across it, and times."""
        if self.size < COARSEST or self.size % 10 != 1:
            raise DataError(
                f"--problem.size must be 10 k + 1, so that cells are square, and {COARSEST} or "
                f"more, so that they follow the die; got {self.size}"
            )
        return self.size, forging_block.rows(self.size), forging.FRAMES

    @property
    def spec(self) -> Spec:
        """The die along a line, the block over its mesh and time, all within [0, 1]."""
        provides = {Need.GRID, Need.FIXED_POINTS} | ({Need.SAME_POINTS} if self.repeated else set())
        return Spec(
            name=self.name,
            inputs=("die",),
            outputs=("x", "y", "u_x", "u_y"),
            units=("mm",) * 4,
            domain=((0.0, 1.0),) * (3 if self.repeated else 1),
            query_domain=((0.0, 1.0),) * 3,
            symmetries=("block",),
            provides=frozenset(provides),
            shape=self.grid if self.repeated else self.grid[:1],
        )

    def generate(
        self, split: str, indices: range, *, seed: int, device: torch.device, resolution: int | None
    ) -> Fields:
        """Draw dies and forge."""
        draws = [
            torch.rand(KNOTS - 2, generator=generator(seed, f"plasticity/{split}", i)).double()
            for i in indices
        ]
        die = profiles(SPREAD * torch.stack(draws), self.grid[0]).float()
        metal = Metal(hardening=self.hardening)
        try:
            forged = forging.solve(die.to(device), metal=metal, mass_scaling=self.mass_scaling)
        except forging.Lost as lost:
            names = [indices[row] for row in lost.samples]
            raise DataError(
                f"samples {names} of the {split} split of {self.name} with seed {seed} could not "
                f"be solved: {lost}. Choose another seed, or some --problem.hardening."
            ) from lost
        return {"die": die, "displacement": forged.displacement.cpu()}

    def dataset(
        self, fields: Fields, resolution: int | None, query_resolution: int | None
    ) -> Stacked:
        """The die along the block, or repeated at every query; places and displacements."""
        grid, die, moved = self.grid, fields["die"].float(), fields["displacement"].float()
        lines = [torch.linspace(0, 1, n, dtype=torch.float64).float() for n in grid]
        queries = torch.cartesian_prod(*lines).unsqueeze(0)
        if self.repeated:
            die = die[:, :, None, None].expand(-1, *grid).flatten(1)
        place = forging_block.reference(self.size).unsqueeze(2) + moved
        return Stacked(
            Batch(
                points=queries if self.repeated else lines[0].view(1, -1, 1),
                values=die.unsqueeze(-1).contiguous(),
                queries=queries,
                targets=torch.cat((place.float(), moved), -1).flatten(1, 3).unsqueeze(1),
                grid=grid if self.repeated else grid[:1],
                query_grid=grid,
            )
        )

    def bytes_each(self, resolution: int | None) -> int:
        """The die and two displacements, in float32."""
        along, across, times = self.grid
        return 4 * along * (1 + 2 * across * times)

    def read(self, split: str, count: int, files: Path | None) -> Fields:
        """Rows of `input` and `output`: the first 900 train, the last 80 test."""
        path = readers.require(published.folder(files, self.name) / self.published[0])
        grid = self.grid
        arrays = {"input": (None, grid[0]), "output": (None, *grid, 4)}
        total = published.shape(path, "input", arrays["input"])[0]
        habit = published.first_and_last(total, self.sizes)
        found = published.read(path, split, count, arrays, habit)
        place, moved = np.split(found["output"], 2, axis=-1)
        start = forging_block.reference(self.size).unsqueeze(2).numpy()
        apart = float(np.abs(place - moved - start).max())
        if apart > TOLERANCE:
            raise DataError(
                f"output of {path} must hold x, y, u_x, u_y with x - u_x = 0.35, ... -49.65 and "
                f"y - u_y = 14.9, ... -0.1; it is {apart:.3g} mm off. Give the published file."
            )
        low, high = float(found["input"].min()), float(found["input"].max())
        if not 10 < low <= high < 60:
            raise DataError(
                f"input of {path} must be heights of the die in mm, from about 15 on; they lie "
                f"between {low:g} and {high:g}. In other units?"
            )
        return {
            "die": torch.from_numpy(np.ascontiguousarray(found["input"])).float(),
            "displacement": torch.from_numpy(np.ascontiguousarray(moved)).float(),
        }

    def write(self, splits: Mapping[str, Fields], folder: Path) -> list[Path]:
        """One file with training, validation and test rows, in this order."""
        fields, marks = published.join(splits, ("train", "validation", "test"))
        targets = self.dataset(fields, None, None).data.truth
        output = targets.reshape(-1, *self.grid, 4).numpy()
        arrays = {"input": fields["die"].numpy(), "output": output} | marks
        version = "5" if output.nbytes < 2**31 else "7.3"
        return [readers.write_mat(folder / self.published[0], arrays, version)]


def profiles(heights: Tensor, points: int) -> Tensor:
    """Dies (B, points) from heights (B, 7) at the inner knots, in float64.

    Raising the ends changes the spline, and with it the lowest point that they are raised above.
    """
    spline = CubicSpline(np.linspace(0, 1, KNOTS), np.eye(KNOTS), bc_type="natural")
    fine = torch.from_numpy(spline(np.linspace(0, 1, _FINE)))
    lowest = torch.zeros(len(heights), 1, dtype=torch.float64)
    for _ in range(_ROUNDS):
        values = torch.cat((lowest + ENDS, heights, lowest + ENDS), 1)
        lowest = (values @ fine.T).amin(1, keepdim=True)
    values = torch.cat((lowest + ENDS, heights, lowest + ENDS), 1)
    return values @ torch.from_numpy(spline(np.linspace(0, 1, points))).T - lowest + LOWEST


PROBLEM = Plasticity()
