"""Weekly sea-surface temperatures at ocean points of a 4-degree grid, 1990 to 2017.

The record comes with the package in hundredths of a degree: week by week and point by point it
changes little, so its differences along both axes fit a byte almost everywhere. `compact` and
`expand` turn one into the other without loss. The same record can be read from the original file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np

from ipot.data.guard.archive import npz_headers
from ipot.data.guard.paths import file_or_folder
from ipot.data.readers import BROKEN
from ipot.errors import DataError

ORIGINAL = "oisst_weekly_4deg_ocean_points_1990-2017.npz"
SCALE = 100
"""Steps of a degree that are kept."""
# Differences lie around zero: shifted, almost all of them have a low byte alone.
SHIFT = 128
POINTS = 2040
"""Ocean points of the record."""
ARRAYS = ("sst", "date", "lat", "lon")
COMPACT = ("low", "high", "start", "lat", "lon")


@dataclass(frozen=True, eq=False)
class Record:
    """Temperatures (weeks, points) in degrees Celsius, with days and places."""

    sst: np.ndarray
    day: np.ndarray
    """The middle day of every week, as datetime64."""
    latitude: np.ndarray
    longitude: np.ndarray
    """In degrees; east of Greenwich from 0 to 360."""


@lru_cache(maxsize=1)
def packaged() -> Record:
    """The record that comes with the package."""
    with as_file(files("ipot.data") / "assets" / "sst_weekly.npz") as path:
        return expand(_arrays(path, COMPACT))


def read(place: Path) -> Record:
    """The record from the original file, or from the folder that holds it."""
    path = place / ORIGINAL if place.is_dir() else place
    arrays = _arrays(path, ARRAYS)
    # Before they become text, which takes up to forty bytes for each.
    if arrays["date"].size > arrays["sst"].size:
        raise DataError(
            f"{path}: `date` must list the weeks of `sst`, got {arrays['date'].shape} for "
            f"{arrays['sst'].shape}. The file is cut short or another one."
        )
    try:
        day = arrays["date"].astype("U10").astype("datetime64[D]")
    except ValueError as error:
        raise DataError(f"{path}: date must hold days as YYYY-MM-DD, got {error}") from error
    _check(path, arrays, day)
    sst, latitude, longitude = (arrays[name].astype(np.float32) for name in ("sst", "lat", "lon"))
    return Record(sst, day, latitude, longitude)


def compact(record: Record) -> dict[str, np.ndarray]:
    """The record as arrays that compress well, rounded to hundredths of a degree."""
    whole = np.round(record.sst.astype(np.float64) * SCALE).astype(np.int32)
    change = np.diff(np.diff(whole, axis=0, prepend=0), axis=1, prepend=0) + SHIFT
    return {
        "low": (change & 255).astype(np.uint8),
        "high": (change >> 8).astype(np.int8),
        "start": record.day[:1].astype("S10"),
        "lat": record.latitude,
        "lon": record.longitude,
    }


def expand(arrays: Mapping[str, np.ndarray]) -> Record:
    """The record from its compact arrays."""
    change = (arrays["high"].astype(np.int32) << 8) + arrays["low"] - SHIFT
    whole = change.cumsum(axis=1).cumsum(axis=0)
    weeks = 7 * np.arange(len(whole))
    day = arrays["start"].astype("U10").astype("datetime64[D]") + weeks
    return Record((whole / SCALE).astype(np.float32), day, arrays["lat"], arrays["lon"])


def _arrays(path: Path, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    """The named arrays of an .npz file."""
    if file_or_folder(path) is None or not path.is_file():
        raise DataError(
            f"{path} is not there. Give the original file {ORIGINAL}, or the folder that holds it, "
            "with --problem.files; or leave that out to use the record of the package."
        )
    try:
        npz_headers(path)
        with np.load(path, allow_pickle=False) as archive:
            if missing := [name for name in names if name not in archive.files]:
                raise DataError(
                    f"{path} lacks {', '.join(missing)}; it has {', '.join(archive.files)}. "
                    f"It must be the file {ORIGINAL}."
                )
            return {name: archive[name] for name in names}
    except BROKEN as error:
        raise DataError(
            f"{path} cannot be read as an .npz file of arrays ({error}): it is damaged or another "
            "file. Fetch it again, or leave --problem.files out."
        ) from error


def _check(path: Path, arrays: Mapping[str, np.ndarray], day: np.ndarray) -> None:
    """Refuse what is not one temperature for every week and place."""
    if not day.ndim == 1 or not len(day):
        raise DataError(f"{path}: `date` must list the weeks of the record, got {day.shape}")
    expected = (len(day), len(np.atleast_1d(arrays["lat"])))
    for name, shape in (("sst", expected), ("lat", expected[1:]), ("lon", expected[1:])):
        if arrays[name].shape != shape or arrays[name].dtype.kind != "f":
            raise DataError(
                f"{path}: {name} must be real numbers of shape {shape} for {expected[0]} dates and "
                f"{expected[1]} latitudes, got {arrays[name].dtype} {arrays[name].shape}. The file "
                "is cut short or another one."
            )
        if bad := int((~np.isfinite(arrays[name])).sum()):
            raise DataError(
                f"{path}: {name} holds {bad} values that are not finite; only points that are "
                "ocean throughout may be listed."
            )
    if not (np.diff(day) == np.timedelta64(7, "D")).all():
        raise DataError(f"{path}: the dates must be a week apart throughout, and they are not")
    reach = np.abs(arrays["lat"]).max()
    if not 5 < reach <= 90 or np.abs(arrays["lon"]).max() > 360:
        raise DataError(
            f"{path}: lat must be degrees from -90 to 90 and lon degrees up to 360; lat reaches "
            f"{reach:g} and lon {np.abs(arrays['lon']).max():g}. Exchanged, or in radians?"
        )
    if arrays["sst"].min() < -5 or arrays["sst"].max() > 50:
        raise DataError(
            f"{path}: temperatures run from {arrays['sst'].min():.1f} to "
            f"{arrays['sst'].max():.1f}; degrees Celsius between -5 and 50 were expected"
        )
