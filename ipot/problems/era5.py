"""The temperature at two metres in the ERA5 reanalysis: seven days to the next seven.

Measured and assimilated, not generated: `files` names GRIB, netCDF or Zarr files. As in the paper,
daily at 00:00 UTC from 2018-01-01 to 2023-03-31 (1916 days), a window every seven days (272 of
them), the first 250 to train on, of which the last 25 choose the best epoch, and the rest to test.
Hersbach et al., "The ERA5 global reanalysis", Q. J. R. Meteorol. Soc. 146 (2020).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from ipot.data.dataset import Dataset
from ipot.data.landsea import LandSea, choose
from ipot.data.store import Fields
from ipot.data.weather import Weather, stamp
from ipot.errors import DataError, Unsupported, shown
from ipot.problems._globe import Globe
from ipot.spec import Bounds

REQUEST = """\
import cdsapi

client = cdsapi.Client()  # needs a free account: https://cds.climate.copernicus.eu/how-to-api
for year in range(2018, 2024):
    months = range(1, 4 if year == 2023 else 13)
    client.retrieve(
        "reanalysis-era5-single-levels",
        {
            "product_type": ["reanalysis"],
            "variable": ["2m_temperature"],
            "year": [str(year)],
            "month": [f"{month:02d}" for month in months],
            "day": [f"{day:02d}" for day in range(1, 32)],
            "time": ["00:00"],
            "data_format": "grib",
            "download_format": "unarchived",
        },
        f"era5_t2m_{year}.grib",
    )
"""
"""A program that downloads what the paper trains on."""


@dataclass(frozen=True, kw_only=True)
class Era5(Globe):
    """Seven days of temperature in, the next seven out, from files of the reanalysis."""

    name: ClassVar[str] = "era5"
    about: ClassVar[str] = "temperature at two metres, measured: seven days to the next seven"
    source: ClassVar[str] = "ERA5 reanalysis, from files (`ipot era5` says which)"
    generated: ClassVar[bool] = False

    area: tuple[float, ...] = ()
    """North, west, south, east in degrees, as the data store has it; the globe unless given."""
    hour: int = 0
    """Time of day, UTC."""
    step_hours: int = 24
    """Hours from one frame to the next."""
    first: str = ""
    """First day, like 2018-01-01; that of the files unless given."""
    last: str = ""
    """Last day; that of the files unless given."""
    training_windows: int = 225
    """The first windows, to train on."""
    validation_windows: int = 25
    """Those after them, to choose the best epoch; all that follow are for testing."""
    landsea: str = ""
    """A file with a land-sea mask; ERA5's own at 2 degrees unless given."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.area:
            _check_area(self.area, 180 / self.size)
        if not 0 <= self.hour < 24 or self.step_hours < 1:
            raise DataError(
                f"hour must lie in 0 to 23 and step_hours be at least 1, got {self.hour} and "
                f"{self.step_hours}"
            )
        for day in (self.first, self.last):
            try:
                np.datetime64(day or "2018-01-01", "D")
            except ValueError as error:
                raise DataError(f"expected a day like 2018-01-01, got {shown(day)}") from error

    @property
    def domain(self) -> Bounds:
        """That of the globe, or the box of the area in the same units."""
        if not self.area:
            return super().domain
        north, west, south, east = (x / 180 for x in self.area)
        return ((south, north), (west, east))

    @property
    def land_and_sea(self) -> LandSea:
        """The mask of `landsea`, or the shipped one."""
        return choose(self.landsea)

    def thins(self, fine: int, coarse: int) -> bool:
        """True if the coarse grid is every k-th line of the fine one, from north and west on."""
        if not self.area:
            return super().thins(fine, coarse)
        return 1 < coarse <= fine and fine % coarse == 0 and min(self.shape(coarse)) > 1

    def shape(self, resolution: int) -> tuple[int, ...]:
        """Lines of latitude and of longitude."""
        if not self.area:
            return super().shape(resolution)
        north, west, south, east = self.area
        d = 180 / resolution
        return int((north - south) / d + 1e-6) + 1, int((east - west) / d + 1e-6) + 1

    def lines(self, resolution: int) -> tuple[Tensor, Tensor]:
        """Latitudes northward and longitudes eastward, in degrees."""
        if not self.area:
            return super().lines(resolution)
        self.stride(self.nodes, resolution)
        rows, columns = (torch.arange(n, dtype=torch.float64) for n in self.shape(resolution))
        d = 180 / resolution
        return (self.area[0] - d * rows).flip(0), self.area[1] + d * columns

    def _rows(self, field: Tensor) -> int:
        """What `read` gives is at the problem's resolution, an area as well as the globe."""
        return self.resolution

    def generate(
        self, split: str, indices: range, *, seed: int, device: torch.device, resolution: int | None
    ) -> Fields:
        """Weather is not generated; `era5_synthetic` is a stand-in that is."""
        raise Unsupported("era5 is measured; use --problem.files, or the problem era5_synthetic")

    def load(self, split: str, count: int, **view: Any) -> Dataset:
        """A split as a data set, read at the resolution that shows inputs and queries."""
        inputs = view.pop("resolution", None)
        inputs = self.resolution if inputs is None else inputs
        stored = self.storage(inputs, view.get("query_resolution"))
        return super(Era5, replace(self, resolution=stored)).load(
            split, count, resolution=inputs, **view
        )

    def read(self, split: str, count: int, files: Path | None) -> Fields:
        """The first windows of a split, at the problem's resolution, in Kelvin."""
        if files is None:
            raise DataError(
                "era5 is measured: name its files with --problem.files PATH (a file, a folder or "
                "a pattern). What to download: 2m_temperature of reanalysis-era5-single-levels, "
                "00:00 UTC of every day from 2018-01-01 to 2023-03-31, 0.25 degrees, global, as "
                "GRIB or netCDF. `ipot era5` prints the request, `ipot era5 PATH` checks what "
                "came. Without the files, the problem era5_synthetic stands in."
            )
        weather = Weather.open(files)
        times = self.schedule(weather)
        windows = self.windows(times)[split][:count]
        if count > len(windows):
            raise DataError(self._too_few(split, count, times, files))
        length = self.history + self.steps
        begin = windows.start * self.every
        span = times[begin : windows[-1] * self.every + length]
        latitudes, longitudes = (line.numpy() for line in self.lines(self.resolution))
        frames = torch.from_numpy(weather.frames(span, latitudes, longitudes))
        starts = [w * self.every - begin for w in windows]
        return {"temperature": torch.stack([frames[s : s + length] for s in starts])}

    def schedule(self, weather: Weather) -> np.ndarray:
        """The times of all frames, without a gap."""
        return weather.schedule(self.hour, self.step_hours, self.first, self.last)

    def windows(self, times: np.ndarray) -> dict[str, range]:
        """The numbers of the windows of each split."""
        total = max(0, (len(times) - self.history - self.steps) // self.every + 1)
        if min(self.training_windows, self.validation_windows) < 0:
            raise DataError(
                "training_windows and validation_windows must not be negative, got "
                f"{self.training_windows} and {self.validation_windows}"
            )
        cuts = [0, self.training_windows, self.training_windows + self.validation_windows, total]
        cuts = [min(cut, total) for cut in cuts]
        names = ("train", "validation", "test")
        return {name: range(cuts[i], cuts[i + 1]) for i, name in enumerate(names)}

    def _too_few(self, split: str, count: int, times: np.ndarray, files: Path) -> str:
        have = {name: len(w) for name, w in self.windows(times).items()}
        return (
            f"{files}: {count} {split} windows were asked for and there are {have[split]}: "
            f"{len(times)} frames from {stamp(times[0])} to {stamp(times[-1])} make "
            f"{sum(have.values())} windows, of which {have['train']} to train, "
            f"{have['validation']} to validate, {have['test']} to test. Ask for fewer (--count."
            f"{split}), or cut otherwise (--problem.training-windows, "
            "--problem.validation-windows, --problem.every, --problem.step-hours)."
        )


def _check_area(area: tuple[float, ...], degrees: float) -> None:
    """Refuse a box that is none, or whose corner is no point of the grid."""
    form = "area is north, west, south, east in degrees"
    if len(area) != 4:
        raise DataError(f"{form}: expected four numbers, got {len(area)}")
    north, west, south, east = area
    if not (-90 <= south < north <= 90 and -180 <= west < east <= west + 360 <= 720):
        raise DataError(f"{form}, south below north and west before east; got {area}")
    off = [x for x in (90 - north, west) if abs(x / degrees - round(x / degrees)) > 1e-6]
    if off or min(north - south, east - west) < degrees:
        raise DataError(
            f"{form}: its northwest corner must be a point of the grid of {degrees:g} degrees and "
            f"it must hold more than one line each way, got {area}"
        )


PROBLEM = Era5()
