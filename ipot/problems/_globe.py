"""What problems of daily weather share: the grid of latitudes and longitudes, and the windows.

A resolution is the number of rows from pole to pole: 720 is 0.25 degrees, 90 is 2, 45 is 4. Rows
go from south to north and end at the north pole; the south pole is left out, so that every
thinning, counted from the north as the paper's is, keeps whole lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from ipot.data import landsea
from ipot.data.dataset import Stacked
from ipot.data.store import Fields
from ipot.data.views import Mask
from ipot.errors import DataError
from ipot.problems.base import GridProblem
from ipot.spec import Bounds, Need, Spec, frame_name


@dataclass(frozen=True, kw_only=True)
class Globe(GridProblem):
    """Past days of temperature in, the following ones out."""

    sizes: ClassVar[Mapping[str, int]] = {"train": 225, "validation": 25, "test": 22}
    periodic: ClassVar[bool] = True
    spans: ClassVar[tuple[int, ...]] = (1, 2)
    views: ClassVar[tuple[str, ...]] = ("weighted",)

    size: int = 720
    """Rows of the finest grid, from pole to pole."""
    resolution: int = 90
    """Rows that a model is trained on: 90 is 2 degrees."""
    history: int = 7
    """Past days that a model sees."""
    steps: int = 7
    """Days to predict."""
    every: int = 7
    """Days from one window to the next."""
    weighted: bool = True
    """Give samples the area of each point, for the weighted scores beside the paper's."""

    def __post_init__(self) -> None:
        if min(self.history, self.steps, self.every) < 1:
            raise DataError(
                "history, steps and every must be at least 1, got "
                f"{self.history}, {self.steps} and {self.every}"
            )

    @property
    def domain(self) -> Bounds:
        """Latitude and longitude as the paper scales them, in units of 180 degrees."""
        return ((-0.5, 0.5), (0.0, 2.0))

    @property
    def spec(self) -> Spec:
        """Past days as channels, one temperature out, stepping by a day."""
        around = self.domain[1][1] - self.domain[1][0] == 2
        return Spec(
            name=self.name,
            inputs=tuple(frame_name("T", self.history - 1 - i) for i in range(self.history)),
            outputs=("T",),
            units=("K",),
            domain=self.domain,
            latlon=True,
            periods=(None, 2.0 if around else None),
            steps=self.steps,
            history=self.history,
            provides=frozenset({Need.GRID, Need.SAME_POINTS, Need.FIXED_POINTS}),
            shape=self.shape(self.resolution),
        )

    @property
    def land_and_sea(self) -> landsea.LandSea:
        """Where there is land."""
        return landsea.shipped()

    @property
    def masks(self) -> Mapping[str, Mask]:  # pyrefly: ignore[bad-override]
        """Inputs on land alone, or at sea alone."""
        return self.land_and_sea.masks(self.domain)

    def lines(self, resolution: int) -> tuple[Tensor, Tensor]:
        """Latitudes northward and longitudes eastward, in degrees."""
        step = self.stride(self.nodes, resolution)
        d = 180 / self.nodes
        rows, columns = (torch.arange(n, dtype=torch.float64) for n in (self.nodes, 2 * self.nodes))
        return (90 - d * rows[::step]).flip(0), d * columns[::step]

    def thin(self, field: Tensor, resolution: int) -> Tensor:
        """Every k-th line of latitude, counted from the north, and of longitude."""
        step = self.stride(self._rows(field), resolution)
        return field[..., (field.shape[-2] - 1) % step :: step, ::step]

    def _rows(self, field: Tensor) -> int:
        """The resolution of a field."""
        return field.shape[-2]

    def coordinates(self, resolution: int) -> Tensor:
        """(latitude / 180, longitude / 180) of every point."""
        return torch.cartesian_prod(*(line / 180 for line in self.lines(resolution)))

    def weights(self, resolution: int) -> Tensor | None:
        """The cosine of the latitude, with mean one."""
        if not self.weighted:
            return None
        latitudes, longitudes = self.lines(resolution)
        cosine = torch.cos(torch.deg2rad(latitudes)).clamp(min=0)
        return (cosine / cosine.mean()).repeat_interleave(len(longitudes))

    def dataset(
        self, fields: Fields, resolution: int | None, query_resolution: int | None
    ) -> Stacked:
        """The first days as channels, the rest as targets."""
        frames = fields["temperature"]
        return self.stack(
            frames[:, : self.history],
            frames[:, self.history :],
            resolution,
            query_resolution,
            times=tuple(float(t) for t in range(1, self.steps + 1)),
        )

    def bytes_each(self, resolution: int | None) -> int:
        """All days of a window in float32."""
        points = torch.Size(self.shape(resolution or self.nodes)).numel()
        return 4 * (self.history + self.steps) * points

    def with_steps(self, steps: int) -> Globe:
        """The problem with forecasts further or less far ahead."""
        if steps < 1:
            raise DataError(f"a forecast needs at least one step, got {steps}")
        return replace(self, steps=steps)
