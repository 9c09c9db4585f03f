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
from typing import Any, ClassVar

import torch

from ipot.data.dataset import Stacked
from ipot.data.store import Fields
from ipot.errors import DataError
from ipot.problems.base import GridProblem
from ipot.solvers import darcy, random_fields
from ipot.spec import Need, Spec


@dataclass(frozen=True, kw_only=True)
class Darcy(GridProblem):
    """Permeability in, pressure out."""

    name: ClassVar[str] = "darcy"
    about: ClassVar[str] = "steady flow through a two-phase medium: permeability to pressure"
    source: ClassVar[str] = "finite volumes on 421 x 421 cells, conjugate gradients to 1e-9"
    sizes: ClassVar[Mapping[str, int]] = {"train": 1000, "validation": 100, "test": 200}
    reduced: ClassVar[Mapping[str, Any]] = {"size": 33, "resolution": 17}

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
    def spec(self) -> Spec:
        """One channel in, one out, on a fixed square grid with the square's symmetries."""
        return Spec(
            name=self.name,
            inputs=("permeability",),
            outputs=("pressure",),
            domain=((0.0, 1.0), (0.0, 1.0)),
            symmetries=("square",),
            provides=frozenset({Need.GRID, Need.SAME_POINTS, Need.FIXED_POINTS}),
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

    def bytes_each(self, resolution: int | None) -> int:
        """A byte for the sign and four for the pressure."""
        return 5 * (resolution or self.size) ** 2


PROBLEM = Darcy()
