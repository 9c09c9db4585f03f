"""Two-dimensional Navier-Stokes on the unit torus, as vorticity.

    w_t + v·∇w = ν Δw + f,   v = (ψ_y, -ψ_x),   -Δψ = w
    f = 0.1 (sin 2π(x + y) + cos 2π(x + y))

Ten frames, one unit of time apart, to the frames that follow: 40 at ν = 1e-3, 20 at 1e-4, 10 at
1e-5. `convention` chooses the covariance of the initial vorticity: "file" is that of the published
data, 7³(-Δ + 49)^-2.5; "paper" is the one printed, with 7^1.5 in front.
Li et al., "Fourier neural operator for parametric PDEs", 2021.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from ipot.data import published, readers
from ipot.data.dataset import Stacked
from ipot.data.store import Fields
from ipot.errors import DataError
from ipot.problems.base import GridProblem
from ipot.solvers import navier_stokes, random_fields
from ipot.spec import Need, Spec, frame_name

HISTORY = 10
SIGMA = {"file": 7.0**1.5, "paper": 7.0**0.75}
# The file of each viscosity, and MATLAB's version that it is stored in.
FILES: dict[float, tuple[str, Literal["5", "7.3"]]] = {
    1e-3: ("V1e-3_N5000_T50.mat", "7.3"),
    1e-4: ("V1e-4_N10000_T30.mat", "7.3"),
    1e-5: ("V1e-5_N1200_T20.mat", "5"),
}
# Copies go by either name.
SPELLINGS = ("NavierStokes_", "ns_")


@dataclass(frozen=True, kw_only=True)
class NavierStokes(GridProblem):
    """Ten frames of vorticity in, the following ones out."""

    name: ClassVar[str] = "navier_stokes"
    about: ClassVar[str] = "forced 2-D turbulence on the torus: ten frames of vorticity to the next"
    source: ClassVar[str] = "Fourier pseudo-spectral, integrating-factor Runge-Kutta of order four"
    sizes: ClassVar[Mapping[str, int]] = {"train": 1000, "validation": 100, "test": 100}
    reduced: ClassVar[Mapping[str, Any]] = {"size": 32, "resolution": 16, "steps": 10}
    periodic: ClassVar[bool] = True
    piece: ClassVar[int] = 100
    published: ClassVar[tuple[str, ...]] = tuple(SPELLINGS[0] + f for f, _ in FILES.values())

    viscosity: float = 1e-3
    """ν; the paper's are 1e-3, 1e-4 and 1e-5."""
    steps: int = 0
    """Frames to predict; 0 takes the paper's: 40, 20 and 10 for the three viscosities."""
    size: int = 0
    """Points a side that the equation is solved on; 0 takes 256 for ν below 1e-4, else 128."""
    resolution: int = 64
    """Points a side that a model is trained on."""
    convention: Literal["file", "paper"] = "file"
    """Which covariance the initial vorticity has."""

    def __post_init__(self) -> None:
        if not 0 < self.viscosity < float("inf"):
            raise DataError(f"viscosity must be positive and finite, got {self.viscosity}")
        if self.steps < 0 or self.size < 0:
            raise DataError("steps and size must not be negative; 0 chooses by the viscosity")

    @property
    def solved(self) -> int:
        """Points a side that the equation is solved on: enough for the smallest eddies."""
        return self.size or (256 if self.viscosity < 9.9e-5 else 128)

    @property
    def nodes(self) -> int:
        """Points a side of the solver's grid, or of the published file's where that is read."""
        if self.files is None:
            return self.solved
        return published.shape(self._path(Path(self.files)), "u", (None,) * 4)[1]

    @property
    def horizon(self) -> int:
        """Frames to predict."""
        if self.steps:
            return self.steps
        return 40 if self.viscosity > 9.9e-4 else 20 if self.viscosity > 9.9e-5 else 10

    @property
    def spec(self) -> Spec:
        """Ten past frames in, one channel out, stepping by one unit of time."""
        return Spec(
            name=self.name,
            inputs=tuple(frame_name("w", HISTORY - 1 - i) for i in range(HISTORY)),
            outputs=("w",),
            domain=((0.0, 1.0), (0.0, 1.0)),
            periods=(1.0, 1.0),
            steps=self.horizon,
            history=HISTORY,
            symmetries=("diagonal",),
            provides=frozenset({Need.GRID, Need.SAME_POINTS, Need.FIXED_POINTS}),
            shape=self.shape(self.resolution),
        )

    def generate(
        self, split: str, indices: range, *, seed: int, device: torch.device, resolution: int | None
    ) -> Fields:
        """Draw initial vorticities and record a frame at every unit of time, from t = 1 on."""
        noise = random_fields.normal(
            random_fields.periodic_square_noise_shape(256),
            seed=seed,
            stream=f"navier_stokes/{split}",
            indices=indices,
        )
        initial = random_fields.periodic_square(
            noise.to(device), self.solved, alpha=2.5, tau=7.0, sigma=SIGMA[self.convention]
        )
        times = [float(t) for t in range(1, HISTORY + self.horizon + 1)]
        frames = navier_stokes.solve(initial.float(), viscosity=self.viscosity, times=times)
        return {"vorticity": self.thin(frames, resolution or self.solved).float()}

    def dataset(
        self, fields: Fields, resolution: int | None, query_resolution: int | None
    ) -> Stacked:
        """The first ten frames as channels, the rest as targets."""
        frames = fields["vorticity"]
        return self.stack(
            frames[:, :HISTORY],
            frames[:, HISTORY:],
            resolution,
            query_resolution,
            times=tuple(float(t) for t in range(1, self.horizon + 1)),
        )

    def read(self, split: str, count: int, files: Path | None) -> Fields:
        """Rows u(n, x, y, t) from t = 1 on: the first 1000 train, the last 100 test."""
        path = self._path(published.folder(files, self.name))
        total, side, _, frames = published.shape(path, "u", (None,) * 4)
        if frames < HISTORY + self.horizon:
            raise DataError(
                f"{path} has {frames} frames, {HISTORY} past ones and {self.horizon} to predict "
                f"were asked for. Ask for at most --problem.steps {frames - HISTORY}."
            )
        habit = published.first_and_last(total, self.sizes)
        arrays = {"u": (None, side, side, frames)}
        found = published.read(path, split, count, arrays, habit)["u"]
        frames = np.ascontiguousarray(found[..., : HISTORY + self.horizon].transpose(0, 3, 1, 2))
        return {"vorticity": torch.from_numpy(frames).float()}

    def write(self, splits: Mapping[str, Fields], folder: Path) -> list[Path]:
        """One file with training, validation and test rows, in this order, and the times."""
        name, version = self._file()
        fields, marks = published.join(splits, ("train", "validation", "test"))
        frames = fields["vorticity"].permute(0, 2, 3, 1).numpy()
        arrays = {"u": frames, "t": np.arange(1.0, frames.shape[-1] + 1)}
        return [readers.write_mat(folder / (SPELLINGS[0] + name), arrays | marks, version)]

    def _file(self) -> tuple[str, Literal["5", "7.3"]]:
        """The published file of the viscosity."""
        for viscosity, file in FILES.items():
            if math.isclose(self.viscosity, viscosity):
                return file
        known = ", ".join(f"{viscosity:g}" for viscosity in FILES)
        raise DataError(
            f"there is no published file for a viscosity of {self.viscosity:g}. Choose "
            f"--problem.viscosity among {known}, or leave --problem.files out to generate the data."
        )

    def _path(self, folder: Path) -> Path:
        """Where the published file is, under either of its names."""
        first, second = (spelling + self._file()[0] for spelling in SPELLINGS)
        return readers.require(folder / first, second)

    def recipe(self, split: str, seed: int, resolution: int | None) -> dict[str, Any]:
        """With the numbers that the zeros stand for, so that equal data have one name."""
        recipe = super().recipe(split, seed, resolution)
        recipe["settings"] |= {"size": self.solved, "steps": self.horizon}
        return recipe

    def bytes_each(self, resolution: int | None) -> int:
        """All frames in float32."""
        return 4 * (HISTORY + self.horizon) * (resolution or self.solved) ** 2

    def with_steps(self, steps: int) -> NavierStokes:
        """The problem with flows followed for longer or shorter."""
        if steps < 1:
            raise DataError(f"a rollout needs at least one step, got {steps}")
        return replace(self, steps=steps)


PROBLEM = NavierStokes()
