"""Where the values of labelled arrays are, found out from names and CF attributes.

A coordinate is known by its standard name, its units or its axis, or else by its own name. On a
grid every dimension has a coordinate of its own; scattered points (stations, cells of a mesh) have
one dimension with several coordinates along it.

Longitude comes first and latitude second, in degrees, and longitudes run on from one place, `west`,
eastward: 350, 355, 0, 5 is 350, 355, 360, 365 or -10, -5, 0, 5. A model sees unit vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ipot.errors import DataError, warn_user
from ipot.formats.roles import role_named, role_of
from ipot.formats.xarray_files import values_of


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


def in_order(places: Places | None, columns: Sequence[str]) -> Places | None:
    """Places with their coordinates in the order of others, by their names or what these mean:
    those of a grid come in the order of its dimensions, and those of stations x first."""
    if places is None:
        return None
    own = {role_named(n) or n: n for n in places.names}
    wanted = [role_named(n) or n for n in columns]
    if len(own) != len(places.names) or sorted(own) != sorted(wanted):
        return places
    return replace(places, names=tuple(own[role] for role in wanted))


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


def assemble(columns: Sequence[Any], dims: Sequence[str], others: Any, what: str) -> Places:
    """Places from coordinates; `others` is where more is known along their dimensions."""
    for c in columns:
        _refuse_no_numbers(c, what)
    columns = [_degrees(c) for c in columns]
    roles = [role_of(c) for c in columns]
    geographic = roles[:2] == ["longitude", "latitude"]
    if geographic:
        _refuse_off_globe(columns, what)
    dims = [str(d) for d in dims]
    if geographic:  # rows of latitude, as maps have them
        pair = [d for c in (columns[1], columns[0]) for d in map(str, c.dims)]
        dims = [d for d in dims if d not in pair] + list(dict.fromkeys(pair))
    sizes = {str(d): n for c in columns for d, n in zip(c.dims, c.shape, strict=True)}
    coordinates = {}
    for c in columns:
        values = values_of(c).astype(np.float64)
        if not np.isfinite(values).all():
            raise DataError(
                f"{what}: the coordinate {c.name} holds {int((~np.isfinite(values)).sum())} values "
                "that are not finite. Drop those points."
            )
        coordinates[str(c.name)] = (tuple(map(str, c.dims)), values, _plain(c.attrs))
    for name, c in getattr(others, "coords", {}).items():
        if str(name) not in coordinates and c.dims and {str(d) for d in c.dims} <= set(dims):
            coordinates[str(name)] = (tuple(map(str, c.dims)), values_of(c), {})
    return Places(
        dims=tuple(dims),
        shape=tuple(sizes[d] for d in dims),
        names=tuple(str(c.name) for c in columns),
        coordinates=coordinates,
        geographic=geographic,
    )


def _degrees(coordinate: Any) -> Any:
    """Longitudes and latitudes in radians, as some models write them, in degrees."""
    unit = str(coordinate.attrs.get("units", "")).lower()
    if unit.startswith("rad") and role_of(coordinate) in ("longitude", "latitude"):
        warn_user(f"{coordinate.name} is in {unit}, and is converted to degrees")
        attrs = {**coordinate.attrs, "units": "degrees"}
        return np.rad2deg(coordinate).assign_attrs(attrs)
    return coordinate


def _refuse_no_numbers(coordinate: Any, what: str) -> None:
    if coordinate.dtype.kind not in "fiu":
        name = coordinate.name
        raise DataError(
            f"{what}: the coordinate {name} is {coordinate.dtype} and not numbers, so it says no "
            f"place. Select one with ds.sel({name}=...), or split it into variables."
        )


def _refuse_off_globe(columns: Sequence[Any], what: str) -> None:
    for c, low, high in ((columns[0], -360.0, 720.0), (columns[1], -90.0, 90.0)):
        values = values_of(c).astype(np.float64)
        values = values[np.isfinite(values)]
        if values.size and (values.min() < low - 1e-3 or values.max() > high + 1e-3):
            raise DataError(
                f"{what}: {c.name} runs from {values.min():g} to {values.max():g}; "
                f"expected degrees between {low:g} and {high:g}. If it is no {role_of(c)}, rename "
                "it (x and y are plain coordinates)."
            )


def _plain(attrs: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes that JSON can keep."""
    kept = ("units", "standard_name", "long_name", "axis", "positive", "calendar")
    return {k: str(v) for k, v in attrs.items() if k in kept}
