"""Transonic flow around airfoils: the mesh to the Mach number.

    ∇·(ρ v) = 0,   ∇·(ρ v ⊗ v + p I) = 0,   ∇·((E + p) v) = 0

Far away ρ = p = 1 and the Mach number is 0.8, without incidence; nothing flows through the wall.
The airfoil is a NACA 0012, bent by seven numbers from U(-0.05, 0.05): vertical displacements of
the nodes of a box around it. Solved and seen on a C-mesh of 221 x 51 nodes whose coordinates are
the input. Li, Huang, Liu and Anandkumar, "Fourier neural operator with learned deformations for
PDEs on general geometries", 2023.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from ipot import seeds
from ipot.data.dataset import Stacked
from ipot.data.store import Fields
from ipot.errors import DataError
from ipot.problems import _wing_files
from ipot.problems.base import GridProblem
from ipot.solvers import airfoil_mesh, euler, euler_flux
from ipot.solvers.euler_flux import Limiter
from ipot.spec import Need, Spec

FULL = 221
REACH = 0.05
LIMITERS: Mapping[str, Limiter] = {"faithful": "minmod", "accurate": "van albada"}


@dataclass(frozen=True, kw_only=True)
class Airfoil(GridProblem):
    """Coordinates of the mesh in, Mach number out."""

    name: ClassVar[str] = "airfoil"
    about: ClassVar[str] = "transonic flow around a wing: the mesh around it to the Mach number"
    source: ClassVar[str] = "finite volumes on a 221 x 51 C-mesh, multigrid until the flow settles"
    sizes: ClassVar[Mapping[str, int]] = {"train": 1000, "validation": 100, "test": 200}
    spans: ClassVar[tuple[int, ...]] = (22, 5)
    piece: ClassVar[int] = 500
    quality: ClassVar[str] = "change"
    views: ClassVar[tuple[str, ...]] = ("inputs",)
    shown: ClassVar[Mapping[str, Any]] = {"inputs": "mesh"}
    published: ClassVar[tuple[str, ...]] = _wing_files.FILES
    reduced: ClassVar[Mapping[str, Any]] = {"size": 45, "resolution": 45, "tolerance": 1e-2}

    size: int = FULL
    """Nodes around the airfoil that the flow is solved on: 221, or 111, 45, 23 of these."""
    resolution: int = FULL
    """Nodes around the airfoil that a model is trained on."""
    mach: float = 0.8
    """Mach number of the flow far away."""
    mode: Literal["faithful", "accurate"] = "faithful"
    """Slopes limited by minmod as in the published data, or by van Albada, which smears less."""
    tolerance: float = 2e-4
    """Relative change of the Mach number in 20 cycles below which a flow is taken as steady."""
    inputs: Literal["departure", "mesh"] = "departure"
    """How far each node lies above that of the undeformed airfoil, or its coordinates as such."""

    def __post_init__(self) -> None:
        if not (self.mach > 0 and self.tolerance > 0):
            raise DataError(
                f"mach and tolerance must be positive, got {self.mach} and {self.tolerance}"
            )

    @property
    def nodes(self) -> int:
        """Nodes around the airfoil, or those of the published files where they are read."""
        return self.size if self.files is None else _wing_files.nodes(Path(self.files))

    @property
    def spec(self) -> Spec:
        """Coordinates in, one channel out; the points are indices, scaled to [0, 1]."""
        return Spec(
            name=self.name,
            inputs=("x", "y") if self.inputs == "mesh" else ("y",),
            outputs=("mach",),
            domain=((0.0, 1.0), (0.0, 1.0)),
            symmetries=("wing",),
            provides=frozenset({Need.GRID, Need.SAME_POINTS, Need.FIXED_POINTS}),
            shape=self.shape(self.resolution),
        )

    def coordinates(self, resolution: int) -> Tensor:
        """Indices along the mesh, both ends included."""
        step = self.stride(self.nodes, resolution)
        lines = [
            torch.arange(0, n, step, dtype=torch.float64) / (n - 1) for n in self.shape(self.nodes)
        ]
        return torch.cartesian_prod(*lines)

    def generate(
        self, split: str, indices: range, *, seed: int, device: torch.device, resolution: int | None
    ) -> Fields:
        """Bend airfoils and solve for the flow around them."""
        step = self._step()
        moved = displacements(f"airfoil/{split}", indices, seed).to(device)
        mesh = airfoil_mesh.c_mesh(moved)[:, ::step, ::step]
        try:
            flow = euler.solve(
                mesh, mach=self.mach, limiter=LIMITERS[self.mode], tolerance=self.tolerance
            )
        except euler.NoFlow as error:
            names = ", ".join(str(indices[row]) for row in error.samples)
            raise DataError(
                f"no flow was found around the airfoils {names} of the {split} split: density or "
                "pressure vanished on the way. They are not kept. Take another --count.seed, or a "
                f"--problem.mach closer to 0.8 than {self.mach}."
            ) from error
        keep = resolution or self.size
        return {
            "mesh": self.thin(mesh.movedim(-1, 1), keep).float(),
            "state": self.thin(flow.state, keep),
            "change": flow.change,
        }

    def dataset(
        self, fields: Fields, resolution: int | None, query_resolution: int | None
    ) -> Stacked:
        """Coordinates at the inputs, Mach numbers at the queries.

        A wing is a few hundredths of the forty chords that the mesh reaches: beside those its
        shape would be lost to rounding. The departure is all that differs between samples.
        """
        mach, nodes = mach_number(fields["state"]).unsqueeze(1), fields["mesh"]
        if self.inputs == "departure":
            step, rest = divmod(FULL - 1, nodes.shape[2] - 1)
            if rest or not step:
                raise DataError(
                    f"departures are counted from the mesh of {FULL} nodes around or from some of "
                    f"them; this mesh has {nodes.shape[2]}. Set --problem.inputs mesh."
                )
            plain = airfoil_mesh.c_mesh(torch.zeros(1, 8, dtype=torch.float64))
            nodes = nodes[:, 1:] - plain[:, ::step, ::step, 1].unsqueeze(1).float()
        return self.stack(nodes, mach, resolution, query_resolution)

    def bytes_each(self, resolution: int | None) -> int:
        """Two coordinates and four numbers of the state at each node, and one for the change."""
        return 4 * (6 * torch.Size(self.shape(resolution or self.size)).numel() + 1)

    def read(self, split: str, count: int, files: Path | None) -> Fields:
        """From the published arrays: the first 1000 rows train, the next 200 test."""
        return _wing_files.read(split, count, files, self.sizes, self.shape, mach_number)

    def write(self, splits: Mapping[str, Fields], folder: Path) -> list[Path]:
        """Three arrays in a folder `naca`, and one that says which rows are whose."""
        return _wing_files.write(splits, folder, mach_number)

    def _step(self) -> int:
        """Every how many nodes of the full mesh are solved on."""
        possible = {cells + 1: 220 // cells for cells in (220, 110, 44, 22)}
        if self.size not in possible:
            sizes = ", ".join(str(size) for size in possible)
            raise DataError(
                f"the flow is solved on all nodes of the mesh or on some of them: --problem.size "
                f"must be one of {sizes}, got {self.size}"
            )
        return possible[self.size]


def displacements(stream: str, indices: range, seed: int) -> Float[Tensor, "S 8"]:
    """How far the nodes of the box move; the first stays, as in the published data."""
    rows = []
    for index in indices:
        draw = torch.rand(8, generator=seeds.generator(seed, stream, index), dtype=torch.float64)
        rows.append(REACH * (2 * draw - 1))
    moved = torch.stack(rows)
    moved[:, 0] = 0
    return moved


def mach_number(state: Float[Tensor, "S 4 I J"]) -> Float[Tensor, "S I J"]:
    """Speed over the speed of sound, from density, velocity and pressure."""
    return euler_flux.mach(state.movedim(1, 0))


PROBLEM = Airfoil()
