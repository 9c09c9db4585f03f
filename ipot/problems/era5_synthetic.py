"""Synthetic daily temperatures on the sphere: a stand-in for ERA5, and not ERA5.

    T = C(x, day) + A,    A_t + u·∇(A + C) = κ ΔA - A / τ

A made-up climate C over the real coasts and anomalies A that random winds draw from it. Grid,
windows, calendar and masks are those of the problem `era5`, so that its experiments run without
its files; what they score here says nothing about real weather.

52 windows in a row are cut from one member, a year of weather of its own behind a spin-up; the
calendar runs on from member to member. No member serves two splits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ipot.data.store import Fields
from ipot.errors import DataError
from ipot.problems._globe import Globe
from ipot.solvers import climate, random_fields, weather
from ipot.solvers.sphere import Transform

MEMBER = 52
"""Windows cut from one member."""
FIRST_WINDOW = {"train": 0, "validation": 225, "test": 250}
"""Where the splits of the real record begin in its calendar, from 2018-01-01."""

# What the shortest wave loses to diffusion in a day: 2e5 m²/s at degree 63.
_DIFFUSION = 1.74
# The winds carry the climate of a continent, not of a cell: degree 20 and beyond is smoothed.
_SMOOTH = 420.0


@dataclass(frozen=True, kw_only=True)
class Era5Synthetic(Globe):
    """Seven days of made-up temperature in, the next seven out."""

    name: ClassVar[str] = "era5_synthetic"
    about: ClassVar[str] = "synthetic temperature on the sphere: a stand-in for era5, made up"
    source: ClassVar[str] = "synthetic: advection by random winds over a made-up climate"
    piece: ClassVar[int] = 5 * MEMBER
    reduced: ClassVar[Mapping[str, Any]] = {
        "size": 36,
        "resolution": 18,
        "degree": 15,
        "spin_up": 6,
    }

    degree: int = 63
    """Shortest waves of the anomalies: 63 is about 320 km."""
    spin_up: int = 40
    """Days from rest to the first that is used."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.degree < climate.DEGREES[1] or self.spin_up < 0:
            raise DataError(
                f"degree must be at least {climate.DEGREES[1]}, the shortest wave of the winds, "
                f"and spin_up not negative; got {self.degree} and {self.spin_up}"
            )

    def generate(
        self, split: str, indices: range, *, seed: int, device: torch.device, resolution: int | None
    ) -> Fields:
        """Follow the members that hold these windows, and cut the windows out of them."""
        members = range(indices.start // MEMBER, (indices.stop - 1) // MEMBER + 1)
        length = self.history + self.steps
        starts = [(i // MEMBER - members.start, i % MEMBER * self.every) for i in indices]
        days = max(start for _, start in starts) + length
        begin = [self.every * (FIRST_WINDOW[split] + MEMBER * member) for member in members]
        anomalies = self._follow(split, members, begin, days, seed=seed, device=device)
        show = self._view(resolution or self.nodes, device)
        windows = []
        for member, start in starts:
            calendar = begin[member] + start + torch.arange(length, device=device)
            windows.append(show(anomalies[member, start : start + length], calendar))
        return {"temperature": torch.stack(windows)}

    def _follow(
        self,
        split: str,
        members: range,
        begin: list[int],
        days: int,
        *,
        seed: int,
        device: torch.device,
    ) -> Tensor:
        """The anomalies of some members at 00:00 of each day: (members, days, m, l)."""
        sphere, steps = weather.transform(self.degree, device), weather.steps_per_day(self.degree)
        land = self._land(sphere.latitudes.rad2deg(), sphere.longitudes.rad2deg())
        parts = self._seasons(sphere.latitudes.rad2deg(), sphere.longitudes.rad2deg())
        parts = sphere.analysis(parts) * torch.exp(sphere.laplacian / _SMOOTH)
        air = weather.Air(
            sphere,
            len(members),
            steps=steps,
            diffusion=_DIFFUSION / (self.degree * (self.degree + 1)),
            damping=climate.damping(land),
        )
        total = self.spin_up + days
        amplitude = climate.amplitudes(self._noise(split, members, total, seed).to(device))
        stages = torch.arange(2 * steps + 1, dtype=torch.float64, device=device) / (2 * steps)
        jets = climate.jets(sphere)
        first = torch.tensor(begin, dtype=torch.float64, device=device) - self.spin_up
        record = air.state.new_empty(len(members), days, *air.state.shape[1:])
        for day in range(total):
            if day >= self.spin_up:
                record[:, day - self.spin_up] = air.state
            weights = climate.season(first + day).to(parts.dtype)
            stream = jets + climate.waves(amplitude, day + stages, sphere)
            air.advance(stream, torch.einsum("bk,kml->bml", weights, parts))
        return record

    def _noise(self, split: str, members: range, days: int, seed: int) -> Tensor:
        """(knots, members, 2, modes): every day of a member has a draw of its own.

        So a longer horizon continues the same weather.
        """
        shape = (climate.KNOTS, 2, len(climate.modes()[0]))
        draws = [
            random_fields.normal(
                shape, seed=seed, stream=f"{self.name}/{split}/{member}", indices=range(days + 1)
            )
            for member in members
        ]
        return torch.stack(draws, 2).flatten(0, 1)

    def _land(self, latitudes: Tensor, longitudes: Tensor) -> Tensor:
        latitude, longitude = torch.meshgrid(latitudes.cpu(), longitudes.cpu(), indexing="ij")
        return self.land_and_sea.smooth(latitude, longitude).to(latitudes.device)

    def _seasons(self, latitudes: Tensor, longitudes: Tensor) -> Tensor:
        latitude, longitude = torch.meshgrid(latitudes, longitudes, indexing="ij")
        return climate.seasons(latitude, longitude, self._land(latitudes, longitudes))

    def _view(self, resolution: int, device: torch.device) -> _View:
        latitudes, longitudes = (line.to(device) for line in self.lines(resolution))
        return _View(self.degree, latitudes, len(longitudes), self._seasons(latitudes, longitudes))


class _View:
    """Temperatures on lines of latitude and longitude, from anomalies and the calendar."""

    def __init__(self, degree: int, latitudes: Tensor, columns: int, seasons: Tensor) -> None:
        # A coarse grid cannot carry the shortest waves: they are synthesised on a finer circle.
        self.skip = 2 * degree // columns + 1
        self.seasons = seasons
        self.sphere = Transform(
            degree,
            len(latitudes),
            self.skip * columns,
            latitudes=latitudes.deg2rad(),
            device=latitudes.device,
        )

    def __call__(self, anomalies: Tensor, calendar: Tensor) -> Tensor:
        """(days, latitudes, longitudes) in Kelvin, in float32."""
        usual = torch.einsum("dk,kij->dij", climate.season(calendar.double()), self.seasons)
        return (usual + self.sphere.synthesis(anomalies)[..., :: self.skip]).float()


PROBLEM = Era5Synthetic()
