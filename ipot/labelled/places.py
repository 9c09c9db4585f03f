"""Where the values of labelled arrays are, found out from names and CF attributes.

A coordinate is known by its standard name, its units or its axis, or else by its own name. On a
grid every dimension has a coordinate of its own; scattered points (stations, cells of a mesh) have
one dimension with several coordinates along it.

Longitude comes first and latitude second, in degrees, and longitudes run on from one place, `west`,
eastward: 350, 355, 0, 5 is 350, 355, 360, 365 or -10, -5, 0, 5. A model sees unit vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

TIMES = ("time", "valid_time", "date", "datetime", "t")
STEPS = ("step", "lead_time", "leadtime", "prediction_timedelta", "forecast_period")
"""How far a forecast goes from its beginning."""
SAMPLES = ("sample", "case", "run", "trajectory", "simulation", "batch")
MEMBERS = ("member", "number", "ensemble", "realization")
_NAMES = {
    "longitude": ("longitude", "lon", "long", "nav_lon", "clon", "xlong"),
    "latitude": ("latitude", "lat", "nav_lat", "clat", "xlat"),
    "x": ("x", "easting", "projection_x_coordinate", "grid_longitude", "rlon"),
    "y": ("y", "northing", "projection_y_coordinate", "grid_latitude", "rlat"),
    "z": (
        "z",
        "level",
        "lev",
        "height",
        "depth",
        "plev",
        "altitude",
        "pressure_level",
        "elevation",
    ),
    "time": TIMES,
}
_UNITS = {
    "longitude": ("degrees_east", "degree_east", "degree_e", "degrees_e"),
    "latitude": ("degrees_north", "degree_north", "degree_n", "degrees_n"),
}


def role_of(coordinate: Any) -> str | None:
    """What a coordinate is: longitude, latitude, x, y, z, time, or nothing that is known."""
    units = str(coordinate.attrs.get("units", "")).lower()
    standard = str(coordinate.attrs.get("standard_name", "")).lower()
    axis = {"x": "x", "y": "y", "z": "z", "t": "time"}.get(
        str(coordinate.attrs.get("axis", "")).lower()
    )
    if coordinate.dtype.kind in "mM":
        return "time"
    for role, known in _UNITS.items():
        if units in known:
            return role
    return role_named(standard) or role_named(str(coordinate.name)) or axis


def role_named(name: str) -> str | None:
    """What a coordinate of this name is."""
    return next((role for role, known in _NAMES.items() if name.lower() in known), None)


@dataclass(frozen=True, kw_only=True)
class Places:
    """Points in the row-major order of some dimensions, and the coordinates that they come from."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    names: tuple[str, ...]
    """The coordinates, one for every column of the points."""
    coordinates: Mapping[str, tuple[tuple[str, ...], np.ndarray, Mapping[str, Any]]]
    """Dimensions, values and attributes of each, and of what else is known along the dimensions."""
    geographic: bool = False
    used: np.ndarray | None = field(default=None, compare=False)
    """Which of the points have values, where some never do (land, for what is of the sea)."""

    def __len__(self) -> int:
        return int(np.prod(self.shape, dtype=int))

    @property
    def grid(self) -> tuple[int, ...] | None:
        """Its shape, where it is a lattice of as many axes as coordinates."""
        alone = [self.coordinates[name][0] for name in self.names]
        if any(len(d) != 1 for d in alone) or len(set(alone)) != len(self.dims):
            return None
        return self.shape if len(self.names) == len(self.dims) else None

    def queries(self, west: float = 0.0) -> np.ndarray:
        """Those that have values."""
        points = self.points(west)
        return points if self.used is None else points[self.used]

    def points(self, west: float = 0.0) -> np.ndarray:
        """All of them (N, D) in float64, longitudes from `west` on."""
        columns = []
        for column, name in enumerate(self.names):
            dims, values, _ = self.coordinates[name]
            along = [self.shape[i] if d in dims else 1 for i, d in enumerate(self.dims)]
            order = sorted(range(len(dims)), key=lambda i, dims=dims: self.dims.index(dims[i]))
            values = np.transpose(values, order).reshape(along)
            if self.geographic and column == 0:
                values = eastward(values, west)
            columns.append(np.broadcast_to(values, self.shape).reshape(-1))
        return np.stack(columns, axis=1)

    @property
    def longitudes(self) -> np.ndarray:
        """All that occur; none where the places are not on the globe."""
        return self.coordinates[self.names[0]][1].reshape(-1) if self.geographic else np.zeros(0)


def eastward(longitudes: np.ndarray, west: float) -> np.ndarray:
    """Longitudes in [west, west + 360), unchanged where they are there."""
    inside = (longitudes >= west) & (longitudes < west + 360)
    return np.where(inside, longitudes, west + (longitudes - west) % 360)


def find_west(longitudes: np.ndarray) -> float:
    """Where to begin to count: in the middle of the widest gap, so that no region is torn."""
    found, gaps = _gaps(longitudes)
    if not len(found):
        return 0.0
    widest = int(gaps.argmax())
    if gaps[-1] > 0.99 * gaps[widest]:
        widest = len(gaps) - 1  # on a whole circle all gaps are alike: the one at 0
    first = found[(widest + 1) % len(found)]
    if first >= 180 and gaps[widest] > 1:
        first -= 360  # the Americas are west
    return float(first - gaps[widest] / 2)


def widest_gap(longitudes: np.ndarray) -> float:
    """Degrees of the circle without a point."""
    gaps = _gaps(longitudes)[1]
    return float(gaps.max()) if len(gaps) else 360.0


def _gaps(longitudes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Longitudes from 0 on, and what lies between each and the next."""
    found = np.unique(np.round(longitudes % 360, 6) % 360)
    return found, np.diff(found, append=found[:1] + 360)
