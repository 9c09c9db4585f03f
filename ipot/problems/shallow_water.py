"""Shallow water on a rotating sphere: unstable jets in both hemispheres, stepped by the hour.

    u_t + u·grad u + f k x u + g grad h = -ν Δ² u,   h_t + div((H + h) u) = -ν Δ² h

A state is the height h above the mean and the vorticity; the divergence is not seen. A trajectory
is followed for 320 hours, of which the last 160 are cut into sequences of 20 frames: one frame in,
19 out. `with_steps(39)` cuts sequences of 40. Trajectories differ by the speed of their jets,
60 to 80 m/s. Galewsky, Scott and Polvani, Tellus A 56 (2004); Yin et al., "Continuous PDE dynamics
forecasting with implicit neural representations", 2023.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ipot.data import dedalus, published
from ipot.data.dataset import Stacked
from ipot.data.store import Fields
from ipot.errors import DataError
from ipot.problems.base import GridProblem
from ipot.seeds import generator
from ipot.solvers import shallow_water
from ipot.solvers.sphere import Transform
from ipot.spec import Need, Spec

HOUR = 3600.0
SCALES = {"height": 3000 / shallow_water.RADIUS, "vorticity": 2 * HOUR}
"""Stored is 3000 times the height in radii, and twice the vorticity per hour."""
FILE_SCALES = {"height": 3000.0, "vorticity": 2.0}
"""These factors from the units of the published files: radii, and per hour."""
SLOWEST, FASTEST = 60.0, 80.0
# Folder, first trajectory and how many: those of the papers, and for validation those behind.
PLACES = {
    "train": ("shallow_water_train", 0, 28),
    "validation": ("shallow_water_train", 28, 2),
    "test": ("shallow_water_test", 0, 2),
}


@dataclass(frozen=True, kw_only=True)
class GaussGrid(GridProblem):
    """Gauss's lines from north to south, twice as many meridians eastward, points as unit vectors.

    A coarser resolution keeps every k-th row from the pole to the equator in the north, and its
    mirror images in the south: so the reflection about the equator maps every grid onto itself.
    """

    periodic: ClassVar[bool] = True
    spans: ClassVar[tuple[int, ...]] = (1, 2)

    def __post_init__(self) -> None:
        if self.size < 4 or self.size % 2:
            raise DataError(f"size must be even and at least 4, got {self.size}")

    def thins(self, fine: int, coarse: int) -> bool:
        """Only an even number of lines has as many in the north as in the south."""
        return coarse % 2 == 0 and super().thins(fine, coarse)

    def thin(self, field: Tensor, resolution: int) -> Tensor:
        """Every k-th row from the poles to the equator, and every k-th column."""
        rows = field.shape[-2]
        step = self.stride(rows, resolution)
        kept = _kept(rows, step).to(field.device)
        return field[..., ::step].index_select(-2, kept)

    def lines(self, resolution: int) -> tuple[Tensor, Tensor]:
        """Latitudes from north to south and longitudes eastward, in radians."""
        step = self.stride(self.nodes, resolution)
        whole = Transform(0, self.nodes)
        return whole.latitudes[_kept(self.nodes, step)], whole.longitudes[::step]

    def coordinates(self, resolution: int) -> Tensor:
        """Unit vectors (x, y, z), row by row."""
        latitude, longitude = torch.cartesian_prod(*self.lines(resolution)).unbind(-1)
        cosine = latitude.cos()
        return torch.stack((cosine * longitude.cos(), cosine * longitude.sin(), latitude.sin()), -1)

    def weights(self, resolution: int) -> Tensor:
        """The area between the lines halfway to the neighbours, with mean one."""
        latitudes, longitudes = self.lines(resolution)
        pole = latitudes.new_tensor([math.pi / 2])
        borders = torch.cat((pole, (latitudes[1:] + latitudes[:-1]) / 2, -pole)).sin()
        area = borders[:-1] - borders[1:]
        return (area / area.mean()).repeat_interleave(len(longitudes))


def _kept(rows: int, step: int) -> Tensor:
    """Every k-th row of the northern half, and its mirror images."""
    north = torch.arange(0, rows // 2, step)
    return torch.cat((north, rows - 1 - north.flip(0)))


@dataclass(frozen=True, kw_only=True)
class ShallowWater(GaussGrid):
    """Height and vorticity in, the following hours out."""

    name: ClassVar[str] = "shallow_water"
    about: ClassVar[str] = "unstable jets on a rotating sphere: height and vorticity, hour by hour"
    source: ClassVar[str] = "spherical harmonics to degree 127, Runge-Kutta of order four"
    sizes: ClassVar[Mapping[str, int]] = {"train": 224, "validation": 16, "test": 16}
    reduced: ClassVar[Mapping[str, Any]] = {
        "size": 32,
        "resolution": 16,
        "t_start": 6,
        "hours": 40,
        "steps": 4,
    }
    piece: ClassVar[int] = 56
    published: ClassVar[tuple[str, ...]] = tuple(
        f"{folder}/traj_{first:04d}.h5" for folder, first, _ in PLACES.values()
    )

    size: int = 128
    """Lines of latitude that the equation is solved for, with harmonics to degree size - 1."""
    resolution: int = 64
    """Lines of latitude that a model is trained on."""
    steps: int = 19
    """Hours to predict."""
    hours: int = 160
    """Frames of a trajectory that are cut into sequences."""
    t_start: int = 160
    """The hour of a trajectory's first frame: by then the jets have broken up."""
    wrap_bump: bool = False
    """Keep the whole bump that upsets the jets; the published data have its eastern half."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps < 1 or self.hours < self.steps + 1 or self.t_start < 0:
            raise DataError(
                f"a trajectory of {self.hours} hours from hour {self.t_start} on has no sequence "
                f"of {self.steps + 1} frames: steps must be at least 1, hours more than steps, "
                "and t_start not negative"
            )

    @property
    def parts(self) -> int:
        """Sequences that a trajectory is cut into."""
        return self.hours // (self.steps + 1)

    @property
    def spec(self) -> Spec:
        """One past frame of two channels in, the next ones out, on unit vectors."""
        return Spec(
            name=self.name,
            inputs=("height", "vorticity"),
            outputs=("height", "vorticity"),
            domain=((-1.0, 1.0),) * 3,
            sphere=True,
            steps=self.steps,
            history=1,
            symmetries=("sphere",),
            provides=frozenset({Need.GRID, Need.SAME_POINTS, Need.FIXED_POINTS}),
            shape=self.shape(self.resolution),
        )

    def generate(
        self, split: str, indices: range, *, seed: int, device: torch.device, resolution: int | None
    ) -> Fields:
        """Follow the trajectories that the samples are cut from, as far as they are needed."""
        trajectories = sorted({index // self.parts for index in indices})
        places = [(trajectories.index(i // self.parts), i % self.parts) for i in indices]
        length = self.steps + 1
        frames = self._follow(
            self._speeds(split, trajectories, seed).to(device),
            length * (1 + max(part for _, part in places)),
            resolution or self.size,
        )
        return {
            name: torch.stack([f[t, part * length : (part + 1) * length] for t, part in places])
            for name, f in frames.items()
        }

    def _speeds(self, split: str, trajectories: list[int], seed: int) -> Tensor:
        """The fastest wind of each trajectory."""
        stream = f"{self.name}/{split}"
        draws = [torch.rand((), generator=generator(seed, stream, t)) for t in trajectories]
        return SLOWEST + (FASTEST - SLOWEST) * torch.stack(draws).double()

    def _follow(self, speeds: Tensor, count: int, resolution: int) -> Fields:
        """The hourly frames (trajectory, time, row, column) of jets with these speeds."""
        state = shallow_water.unstable_jets(speeds, self.size - 1, wrap=self.wrap_bump)
        view = Transform(self.size - 1, self.size, device=speeds.device)
        # The same step throughout, so that a trajectory does not depend on where frames begin.
        step = HOUR / math.ceil(HOUR / shallow_water.EARTH.longest_step(self.size - 1))
        times = [HOUR * (self.t_start + hour) for hour in range(count)]
        frames: dict[str, list[Tensor]] = {"height": [], "vorticity": []}
        for vorticity, _, height in shallow_water.solve(state, times=times, dt=step):
            for name, field in (("height", height), ("vorticity", vorticity)):
                seen = self.thin(view.synthesis(field), resolution)
                frames[name].append((SCALES[name] * seen).float())
        return {name: torch.stack(seen, 1) for name, seen in frames.items()}

    def dataset(
        self, fields: Fields, resolution: int | None, query_resolution: int | None
    ) -> Stacked:
        """The first frame as input, the others as targets."""
        frames = torch.stack((fields["height"], fields["vorticity"]), 2)
        times = tuple(float(t) for t in range(1, self.steps + 1))
        return self.stack(frames[:, 0], frames[:, 1:], resolution, query_resolution, times)

    def read(self, split: str, count: int, files: Path | None) -> Fields:
        """Sequences from one file for each trajectory."""
        folder, first, most = PLACES[split]
        if count > most * self.parts:
            raise DataError(
                f"the {split} split has {most} trajectories of {self.parts} sequences, {count} "
                f"were asked for. Ask for at most {most * self.parts} with --count.{split}."
            )
        root = published.folder(files, self.name) / folder
        frames: dict[str, list[Tensor]] = {name: [] for name in FILE_SCALES}
        for number in range(math.ceil(count / self.parts)):
            path = root / f"traj_{first + number:04d}.h5"
            if number and not path.is_file():
                raise DataError(
                    f"{root} has {number} trajectories for the {split} split, that is "
                    f"{number * self.parts} sequences; {count} were asked for. Ask for fewer with "
                    f"--count.{split}, or put {path.name} there."
                )
            sequences = self._read_one(path, min(self.parts, count - number * self.parts))
            for name, field in sequences.items():
                frames[name].append(field)
        return {name: torch.cat(parts) for name, parts in frames.items()}

    def _read_one(self, path: Path, count: int) -> Fields:
        """The first sequences of a trajectory."""
        length = self.steps + 1
        found = dedalus.read(path, tuple(FILE_SCALES), count * length)
        rows = len(found.latitudes)
        if not self.thins(self.nodes, rows):
            raise DataError(
                f"{path} has {rows} lines of latitude, which is no thinning of {self.nodes}. "
                "Set --problem.size to the lines of the grid that it was solved on."
            )
        latitudes, longitudes = (line.numpy() for line in self.lines(rows))
        same = len(found.longitudes) == 2 * rows and np.allclose(found.longitudes, longitudes)
        if not (same and np.allclose(found.latitudes, latitudes)):
            raise DataError(
                f"the grid of {path} is not that of {rows} Gauss lines and {2 * rows} meridians: "
                "it must be a published file, or one written in its layout."
            )
        scaled = {name: found.fields[name] * scale for name, scale in FILE_SCALES.items()}
        return {
            name: torch.from_numpy(field.astype(np.float32)).unflatten(0, (count, length))
            for name, field in scaled.items()
        }

    def write(self, splits: Mapping[str, Fields], folder: Path) -> list[Path]:
        """One file for each trajectory; validation goes behind the training trajectories."""
        written = []
        for split, fields in splits.items():
            place, first, most = PLACES[split]
            total = len(fields["height"])
            if total > most * self.parts:
                raise DataError(
                    f"the published {split} split has room for {most * self.parts} sequences, got "
                    f"{total}: write fewer"
                )
            for number, start in enumerate(range(0, total, self.parts)):
                sequences = {k: v[start : start + self.parts] for k, v in fields.items()}
                path = folder / place / f"traj_{first + number:04d}.h5"
                written.append(dedalus.write(path, self._snapshots(sequences)))
        return written

    def _snapshots(self, sequences: Fields) -> dedalus.Snapshots:
        """Sequences of one trajectory in the units of the published files."""
        fields = {
            name: sequences[name].flatten(0, 1).double().cpu().numpy() / scale
            for name, scale in FILE_SCALES.items()
        }
        frames, rows, _ = fields["height"].shape
        times = self.t_start + np.arange(float(frames))
        return dedalus.Snapshots(fields, times, *(line.numpy() for line in self.lines(rows)))

    def bytes_each(self, resolution: int | None) -> int:
        """Two fields of float32 in every frame."""
        return 2 * 4 * (self.steps + 1) * 2 * (resolution or self.size) ** 2

    def with_steps(self, steps: int) -> ShallowWater:
        """The problem with trajectories cut into longer or shorter sequences."""
        if steps < 1:
            raise DataError(f"a rollout needs at least one step, got {steps}")
        return replace(self, steps=steps)


PROBLEM = ShallowWater()
