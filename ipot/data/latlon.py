"""Grids of latitude and longitude, found out from the coordinates of a file.

Files differ in the names and the order of their axes, in which pole comes first and in where
longitudes begin. Here all become latitude from north to south and longitude eastward. Nothing is
interpolated: points must be those of a regular grid through the pole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ipot.errors import DataError

LATITUDES = ("latitude", "lat", "nav_lat", "y")
LONGITUDES = ("longitude", "lon", "nav_lon", "x")


def unit_vectors(latitude: np.ndarray, longitude: np.ndarray) -> np.ndarray:
    """Places (points, 3) on the sphere, from angles in radians: no seam, no poles."""
    level = np.cos(latitude)
    return np.stack([level * np.cos(longitude), level * np.sin(longitude), np.sin(latitude)], -1)


@dataclass(frozen=True)
class Grid:
    """Equally spaced points: `rows` steps from pole to pole, from a corner south and east.

    Counted in whole steps: latitude 90 - i d, longitude j d, with d = 180 / rows.
    """

    rows: int
    north: int
    west: int
    height: int
    width: int

    @property
    def degrees(self) -> float:
        """d, from one point to the next."""
        return 180 / self.rows

    @property
    def globe(self) -> bool:
        """Whether the points go all around, from the north pole to the last row but one or on."""
        return self.north == 0 and self.height >= self.rows and self.width == 2 * self.rows

    @property
    def area(self) -> tuple[float, float, float, float]:
        """North, west, south and east, in degrees."""
        d = self.degrees
        north, west = 90 - self.north * d, self.west * d
        return north, west, north - (self.height - 1) * d, west + (self.width - 1) * d

    def __str__(self) -> str:
        north, west, south, east = self.area
        return (
            f"{self.height} x {self.width} points every {self.degrees:g} degrees, latitude "
            f"{north:g} to {south:g}, longitude {west:g} to {east:g}"
        )

    def find(self, latitudes: np.ndarray, longitudes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The rows and columns of these places; -1 where there is no point."""
        i = (90 - latitudes) / self.degrees - self.north
        j = (longitudes / self.degrees - self.west) % (2 * self.rows)
        return _whole(i, self.height), _whole(j, self.width, 2 * self.rows)


def on_grid(array: Any, where: object) -> tuple[Grid, Any]:
    """Its grid, and the array turned to (..., latitude, longitude), from north to south."""
    lat, lon = (_coordinate(array, names, where) for names in (LATITUDES, LONGITUDES))
    y, x = (np.asarray(array[name].values, dtype=np.float64) for name in (lat, lon))
    if abs(y).max() > 90 + 1e-3:
        raise DataError(
            f"{where}: latitudes run from {y[0]:g} to {y[-1]:g}; expected -90 to 90. "
            "Are the axes exchanged?"
        )
    others = [d for d in array.dims if d not in (lat, lon)]
    array = array.transpose(*others, lat, lon)
    if y[0] < y[-1]:
        array, y = array.isel({lat: slice(None, None, -1)}), y[::-1]
    x = np.unwrap(x, period=360)  # 350, 355, 0, 5 goes on eastward
    # Files that close the circle repeat their first meridian; it is not another point.
    if len(x) > 1 and abs(x[-1] - x[0] - 360) < 1e-3:
        array, x = array.isel({lon: slice(None, -1)}), x[:-1]
    step, across = _step(-y, "latitudes", where), _step(x, "longitudes", where)
    if abs(step - across) > 1e-3 * step:
        raise DataError(
            f"{where}: {step:g} degrees from one latitude to the next and {across:g} between "
            "longitudes; expected a grid with the same step both ways."
        )
    rows = round(180 / step)
    north, west = (90 - y[0]) * rows / 180, x[0] * rows / 180
    if abs(rows * step - 180) > 0.05 or max(abs(v - round(v)) for v in (north, west)) > 0.02:
        raise DataError(
            f"{where}: points every {step:g} degrees from {y[0]:g} north and {x[0]:g} east are not "
            "those of a latitude-longitude grid through the pole (90 - i d, j d). "
            "Download the data on a regular grid, 0.25 x 0.25 degrees for ERA5."
        )
    grid = Grid(rows, round(north), round(west), len(y), len(x))
    if grid.width > 2 * rows:
        raise DataError(f"{where}: {len(x)} longitudes every {step:g} degrees go around twice.")
    return grid, array


def _coordinate(array: Any, names: tuple[str, ...], where: object) -> str:
    """The axis with one of these names, which must have coordinates."""
    for name in array.dims:
        if str(name).lower() in names and name in array.coords:
            values = np.asarray(array[name].values)
            if len(values) < 2 or not np.isfinite(values.astype(np.float64)).all():
                raise DataError(
                    f"{where}: expected two or more finite values of {name}, got {len(values)}"
                )
            return str(name)
    axes = ", ".join(map(str, array.dims))
    raise DataError(
        f"{where}: expected an axis {' or '.join(names[:2])} with coordinates, got the axes {axes}"
    )


def _step(x: np.ndarray, name: str, where: object) -> float:
    """The distance of equally spaced, increasing values."""
    steps = np.diff(x)
    mean = (x[-1] - x[0]) / (len(x) - 1)
    off = np.abs(steps - mean) > 1e-2 * abs(mean)
    if mean <= 0 or off.any():
        i = int(off.argmax())
        raise DataError(
            f"{where}: {name} must be equally spaced and in order; on average they are {mean:g} "
            f"degrees apart, but values {i} and {i + 1} are {steps[i]:g} apart."
        )
    return float(mean)


def _whole(index: np.ndarray, size: int, period: int | None = None) -> np.ndarray:
    whole = np.rint(index).astype(int)
    if period:
        whole = whole % period
    off = np.abs(index - np.rint(index)) > 0.02
    return np.where(off | (whole < 0) | (whole >= size), -1, whole)
