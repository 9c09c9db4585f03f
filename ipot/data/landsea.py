"""Where there is land: ERA5's own mask at 2 degrees, shipped, or any finer one from a file.

A field of the fraction of land on points 90 - i d degrees north and j d degrees east. ERA5 counts a
point as land where at least half of its cell is. Where the shipped mask comes from is told beside
it, in `assets/landsea_2deg.md`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ipot.data import gridded, latlon
from ipot.data.views import Mask
from ipot.errors import DataError
from ipot.spec import Bounds

THRESHOLD = 0.5
PAPER_COUNTS = (11_105, 5_095)
"""Points that the paper counts at 2 degrees; the shipped mask has 10,829 of sea, 5,371 of land."""

_NAMES = ("lsm", "land_sea_mask", "landsea", "mask")


@dataclass(frozen=True, eq=False)
class LandSea:
    """The fraction of land on a grid from the north pole southward and from Greenwich eastward."""

    fraction: Tensor
    """(rows, 2 rows), or a row more where the south pole is there too; float64 in [0, 1]."""

    @property
    def degrees(self) -> float:
        """From one point to the next."""
        return 360 / self.fraction.shape[1]

    def land(self, latitude: Tensor, longitude: Tensor) -> Tensor:
        """Whether the nearest point of the mask is land; degrees in, any longitude."""
        # A tie between two points must not be left to the last bit of a coordinate.
        row, column = (
            ((x.double() * 1e4).round() / 1e4 / self.degrees + 0.5).floor().long()
            for x in (90 - latitude, longitude)
        )
        rows, columns = self.fraction.shape
        return self.fraction[row.clamp(0, rows - 1), column % columns] >= THRESHOLD

    def smooth(self, latitude: Tensor, longitude: Tensor) -> Tensor:
        """The fraction of land between the points of the mask, bilinearly."""
        rows, columns = self.fraction.shape
        y = ((90 - latitude.double()) / self.degrees).clamp(0, rows - 1)
        x = longitude.double() / self.degrees
        top, left = y.floor().long(), x.floor().long()
        down, right = y - top, x - left
        bottom = (top + 1).clamp(max=rows - 1)

        def line(row: Tensor) -> Tensor:
            here, next_ = (
                self.fraction[row, left % columns],
                self.fraction[row, (left + 1) % columns],
            )
            return here + right * (next_ - here)

        return line(top) + down * (line(bottom) - line(top))

    def masks(self, domain: Bounds) -> dict[str, Mask]:
        """Masks "land" and "sea" for points (latitude / 180, longitude / 180) of a domain.

        Each keeps what it is named after. The paper's "masked land" hides the land: here that is
        the mask "sea", and its "masked sea" is "land".
        """

        def land(unit: Tensor) -> Tensor:
            low = torch.tensor([a for a, _ in domain], dtype=torch.float64)
            size = torch.tensor([b - a for a, b in domain], dtype=torch.float64)
            latitude, longitude = (180 * (low + unit.double() * size)).unbind(-1)
            return self.land(latitude, longitude)

        return {"land": land, "sea": lambda unit: ~land(unit)}


@cache
def shipped() -> LandSea:
    """ERA5's mask at 2 degrees."""
    with resources.files("ipot.data").joinpath("assets/landsea_2deg.npy").open("rb") as file:
        bits = np.load(file)
    return LandSea(torch.from_numpy(np.unpackbits(bits).reshape(90, 180)).double())


@cache
def from_file(path: str) -> LandSea:
    """A mask from a GRIB, netCDF or Zarr file: a global fraction of land, 0 to 1 or to 1000."""
    array = gridded.variable(gridded.open_file(Path(path)), _NAMES, 172, "land-sea mask", path)
    grid, array = latlon.on_grid(array, path)
    if not grid.globe:
        raise DataError(f"{path}: a land-sea mask must cover the globe; this one covers {grid}")
    values = torch.from_numpy(np.asarray(array.values, dtype=np.float64))
    values = values.reshape([n for n in values.shape if n > 1])  # a single time is no axis
    if values.ndim != 2:
        raise DataError(
            f"{path}: expected a land-sea mask (latitude, longitude), got the axes "
            f"{', '.join(map(str, array.dims))}. Keep one time of it."
        )
    # Rounding may pass the bounds a little; thousandths come near their own.
    values = values / 1000 if values.max() > 500 else values
    least = 0.5  # below it no point would count as land
    if not bool(((values > -1e-3) & (values < 1 + 1e-3)).all()) or values.max() < least:
        raise DataError(
            f"{path}: a fraction of land lies between 0 and 1 (or 0 and 1000, in thousandths); "
            f"this mask has values from {values.min():g} to {values.max():g} or gaps"
        )
    return LandSea(values.clamp(0, 1))


def choose(path: str) -> LandSea:
    """The mask of a file, or the shipped one where none is named."""
    return from_file(path) if path else shipped()
