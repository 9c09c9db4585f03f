"""Steady Darcy flow on the unit square.

    -∇·(a ∇u) = 1,   u = 0 on the boundary

The permeability a is 12 where a Gaussian field with covariance τ^2(-Δ + τ²)^-2 and no-flux
boundaries is positive, and 3 elsewhere (τ = 3). Solved on 421 x 421 cells, seen at 85 x 85.
Li et al., "Fourier neural operator for parametric PDEs", 2021.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from ipot.data import published, readers
from ipot.data.dataset import Stacked
from ipot.data.store import Fields
from ipot.errors import DataError
from ipot.problems.base import GridProblem
from ipot.solvers import darcy, random_fields
from ipot.spec import Need, Spec

TRAIN, TEST = "piececonst_r421_N1024_smooth1.mat", "piececonst_r421_N1024_smooth2.mat"


@dataclass(frozen=True, kw_only=True)
class Darcy(GridProblem):
    """Permeability in, pressure out."""

    name: ClassVar[str] = "darcy"
    about: ClassVar[str] = "steady flow through a two-phase medium: permeability to pressure"
    source: ClassVar[str] = "finite volumes on 421 x 421 cells, conjugate gradients to 1e-9"
    sizes: ClassVar[Mapping[str, int]] = {"train": 1000, "validation": 100, "test": 200}
    reduced: ClassVar[Mapping[str, Any]] = {"size": 33, "resolution": 17}
    published: ClassVar[tuple[str, ...]] = (TRAIN, TEST)

    size: int = 421
    """Cells a side that the equation is solved on."""
    resolution: int = 85
    """Points a side that a model is trained on."""
    high: float = 12.0
    """Permeability where the Gaussian field is positive."""
    low: float = 3.0
    """Permeability elsewhere."""

    def __post_init__(self) -> None:
        if not (0 < self.low < math.inf and 0 < self.high < math.inf):
            raise DataError(f"permeabilities must be positive, got {self.low} and {self.high}")

    @property
    def nodes(self) -> int:
        """Cells a side of the solver's grid, or of the published files' where they are read."""
        if self.files is None:
            return self.size
        path = readers.require(Path(self.files) / TRAIN, TEST)
        return published.shape(path, "coeff", (None, None, None))[1]

    @property
    def spec(self) -> Spec:
        """One channel in, one out, on a fixed square grid with the square's symmetries."""
        return Spec(
            name=self.name,
            inputs=("permeability",),
            outputs=("pressure",),
            domain=((0.0, 1.0), (0.0, 1.0)),
            symmetries=("square",),
            provides=frozenset({Need.GRID, Need.SAME_POINTS, Need.FIXED_POINTS}),
            shape=self.shape(self.resolution),
        )

    def generate(
        self, split: str, indices: range, *, seed: int, device: torch.device, resolution: int | None
    ) -> Fields:
        """Draw permeabilities and solve; the permeability is kept as the sign of its field."""
        noise = random_fields.normal(
            (self.size, self.size), seed=seed, stream=f"darcy/{split}", indices=indices
        )
        positive = random_fields.neumann_square(noise.to(device), alpha=2.0, tau=3.0) >= 0
        permeability = torch.where(positive, self.high, self.low).double()
        pressure = darcy.solve(permeability)
        keep = resolution or self.size
        return {
            "positive": self.thin(positive, keep),
            "pressure": self.thin(pressure, keep).float(),
        }

    def dataset(
        self, fields: Fields, resolution: int | None, query_resolution: int | None
    ) -> Stacked:
        """Permeability at the inputs, pressure at the queries."""
        permeability = torch.where(fields["positive"], self.high, self.low)
        return self.stack(
            permeability.unsqueeze(1),
            fields["pressure"].unsqueeze(1),
            resolution,
            query_resolution,
        )

    def read(self, split: str, count: int, files: Path | None) -> Fields:
        """Rows coeff(n, x, y) and sol(n, x, y) at cell centres.

        The first 1000 rows of the first file train; of the second the first 200 test, the others
        validate.
        """
        file = TRAIN if split == "train" else TEST
        path = readers.require(published.folder(files, self.name) / file)
        total, side, _ = published.shape(path, "coeff", (None, None, None))
        test = min(self.sizes["test"], total)
        habit = {
            "train": range(min(self.sizes["train"], total)),
            "test": range(test),
            "validation": range(test, total),
        }
        # One at a time: a published array takes 1.5 GB.
        shape = (total, side, side)
        coefficient, pressure = (
            torch.from_numpy(published.read(path, split, count, {name: shape}, habit)[name]).float()
            for name in ("coeff", "sol")
        )
        return {
            "positive": self._phase(path, coefficient).contiguous(),
            "pressure": pressure.contiguous(),
        }

    def _phase(self, path: Path, coefficient: Tensor) -> Tensor:
        """Where the permeability is the one of positive fields; others than the two are refused."""
        high, low = ((coefficient - a).abs() <= 1e-5 * a for a in (self.high, self.low))
        other = ~(high | low)
        if not other.any():
            return high
        row = int(other.flatten(1).any(1).nonzero()[0])
        values = coefficient[row].unique().tolist()
        shown = ", ".join(f"{value:g}" for value in values[:4])
        found = f"{shown} and more" if len(values) > 4 else shown
        mend = "It is not the published file of that name."
        if len(values) == 2:
            mend = f"Set --problem.low {values[0]:g} --problem.high {values[1]:g}."
        raise DataError(
            f"coeff of {path} must be {self.low:g} or {self.high:g} everywhere, in sample {row} "
            f"of those read it is {found}. {mend}"
        )

    def write(self, splits: Mapping[str, Fields], folder: Path) -> list[Path]:
        """Training rows to the first file; test rows, then validation rows, to the second."""
        written = []
        for file, order in ((TRAIN, ("train",)), (TEST, ("test", "validation"))):
            if not set(order) & set(splits):
                continue
            fields, marks = published.join(splits, order)
            side = fields["pressure"].shape[-1]
            if side != self.size:
                # Cell centres of a coarser grid are not among those of the finer one.
                raise DataError(
                    f"the published layout holds all {self.size} cells a side, these fields have "
                    f"{side}. Generate them with --resolution {self.size}."
                )
            coefficient = torch.where(fields["positive"], self.high, self.low)
            arrays = {"coeff": coefficient.float().numpy(), "sol": fields["pressure"].numpy()}
            written.append(readers.write_mat(folder / file, arrays | marks))
        return written

    def bytes_each(self, resolution: int | None) -> int:
        """A byte for the sign and four for the pressure."""
        return 5 * (resolution or self.size) ** 2


PROBLEM = Darcy()
