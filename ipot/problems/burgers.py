"""Viscous Burgers on the circle.

    u_t + (u² / 2)_x = ν u_xx,   x in (0, 1) periodic,   u(·, 0) to u(·, 1)

The initial state is a Gaussian field without mean. `convention` chooses its covariance: "file" is
that of the published data, 625²(-Δ + 25)^-4; "paper" is the one printed, 625(-Δ + 25)^-2. The
viscosity printed is 0.1, at which the field all but decays by t = 1; the published data look like
0.01, which is the default here. Li et al., "Fourier neural operator for parametric PDEs", 2021.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch

from ipot.data import published, readers
from ipot.data.dataset import Stacked
from ipot.data.store import Fields
from ipot.errors import DataError
from ipot.problems.base import GridProblem
from ipot.solvers import burgers, random_fields
from ipot.spec import Need, Spec

# Modes that the initial state is drawn with, whatever the grid: the "paper" spectrum decays as
# k^-2 only and needs them; the other is far below rounding there.
MODES = 512
CONVENTIONS = {"file": (625.0, 4.0), "paper": (25.0, 2.0)}
FILE = "burgers_data_R10.mat"


@dataclass(frozen=True, kw_only=True)
class Burgers(GridProblem):
    """The state at time 0 in, the state at time 1 out."""

    name: ClassVar[str] = "burgers"
    about: ClassVar[str] = "viscous Burgers on the circle: the state at t = 0 to that at t = 1"
    source: ClassVar[str] = "Fourier pseudo-spectral, exponential Runge-Kutta of order four"
    sizes: ClassVar[Mapping[str, int]] = {"train": 1000, "validation": 100, "test": 100}
    reduced: ClassVar[Mapping[str, Any]] = {"size": 32, "resolution": 16}
    periodic: ClassVar[bool] = True
    spans: ClassVar[tuple[int, ...]] = (1,)
    piece: ClassVar[int] = 200
    published: ClassVar[tuple[str, ...]] = (FILE,)

    size: int = 1024
    """Points that the equation is solved on."""
    resolution: int = 1024
    """Points that a model is trained on."""
    viscosity: float = 0.01
    """ν; the paper prints 0.1."""
    convention: Literal["file", "paper"] = "file"
    """Which covariance the initial state has."""

    def __post_init__(self) -> None:
        if not self.viscosity > 0:
            raise DataError(f"viscosity must be positive, got {self.viscosity}")

    @property
    def nodes(self) -> int:
        """Points of the solver's grid, or of the published file's where that is read."""
        if self.files is None:
            return self.size
        path = readers.require(Path(self.files) / FILE)
        return published.shape(path, "a", (None, None))[1]

    @property
    def spec(self) -> Spec:
        """One channel in, one out, on a circle."""
        return Spec(
            name=self.name,
            inputs=("u(0)",),
            outputs=("u(1)",),
            domain=((0.0, 1.0),),
            periods=(1.0,),
            symmetries=("translation",),
            provides=frozenset({Need.GRID, Need.SAME_POINTS, Need.FIXED_POINTS}),
            shape=self.shape(self.resolution),
        )

    def generate(
        self, split: str, indices: range, *, seed: int, device: torch.device, resolution: int | None
    ) -> Fields:
        """Draw initial states and advance them to t = 1."""
        sigma, gamma = CONVENTIONS[self.convention]
        noise = random_fields.normal(
            (2, MODES), seed=seed, stream=f"burgers/{split}", indices=indices
        )
        initial = random_fields.periodic_line(
            noise.to(device), self.size, sigma=sigma, tau=5.0, gamma=gamma
        )
        final = burgers.solve(initial, viscosity=self.viscosity)[:, -1]
        keep = resolution or self.size
        return {
            "initial": self.thin(initial, keep).float(),
            "final": self.thin(final, keep).float(),
        }

    def dataset(
        self, fields: Fields, resolution: int | None, query_resolution: int | None
    ) -> Stacked:
        """The initial state at the inputs, the final one at the queries."""
        return self.stack(
            fields["initial"].unsqueeze(1),
            fields["final"].unsqueeze(1),
            resolution,
            query_resolution,
        )

    def read(self, split: str, count: int, files: Path | None) -> Fields:
        """Rows a(n, x) and u(n, x) at x = i / size: the first 1000 train, the last 100 test."""
        path = readers.require(published.folder(files, self.name) / FILE)
        total, nodes = published.shape(path, "a", (None, None))
        arrays = {"a": (None, nodes), "u": (None, nodes)}
        habit = published.first_and_last(total, self.sizes)
        found = published.read(path, split, count, arrays, habit)
        return {
            "initial": torch.from_numpy(found["a"]).float(),
            "final": torch.from_numpy(found["u"]).float(),
        }

    def write(self, splits: Mapping[str, Fields], folder: Path) -> list[Path]:
        """One file with training, validation and test rows, in this order."""
        fields, marks = published.join(splits, ("train", "validation", "test"))
        arrays = {"a": fields["initial"].numpy(), "u": fields["final"].numpy()}
        return [readers.write_mat(folder / FILE, arrays | marks)]

    def bytes_each(self, resolution: int | None) -> int:
        """Two lines of float32."""
        return 8 * (resolution or self.size)


PROBLEM = Burgers()
