"""Files of ERA5 and the like: which times they hold, and the temperature at two metres in Kelvin.

Reads lazily: opening looks at names, axes and times alone. Values are read when they are asked for,
and refused where they are missing or cannot be a temperature.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ipot.data import gridded, latlon
from ipot.data.latlon import Grid
from ipot.errors import DataError, shown

NAMES = ("t2m", "2t", "2m_temperature", "t_2m", "var_2t", "var167")
PARAMETER = 167
"""The number of the temperature at two metres in ECMWF's tables."""
TIMES = ("valid_time", "time", "date", "datetime")

ZERO_CELSIUS = 273.15
# Colder than Antarctica and warmer than Death Valley ever were: between them the two scales do not
# meet, so that a wrong unit shows.
COLDEST, WARMEST = 170.0, 345.0

_KELVIN = ("k", "kelvin", "degk", "degree_kelvin", "degrees_kelvin")
_CELSIUS = ("c", "°c", "celsius", "degc", "deg_c", "degree_celsius", "degrees_celsius")
_ISSUE = "Ask for 2m_temperature of reanalysis-era5-single-levels (`ipot era5` says how)."


@dataclass(frozen=True, eq=False)
class Part:
    """One file: an array (time, latitude, longitude), maybe with a version axis behind time."""

    path: Path
    array: Any
    grid: Grid
    times: np.ndarray
    shift: float
    """What to add for Kelvin."""

    def values(self, index: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """The values at some times and rows, all columns; of two versions the one that is there."""
        try:
            chosen = self.array.isel(
                {"time": _slice(index), self.array.dims[-2]: _slice(rows)}
            ).values.astype(np.float32)
        except Exception as error:  # every reader has errors of its own
            raise DataError(
                f"{self.path}: values from {stamp(self.times[index[0]])} on cannot be read, the "
                f"file may be truncated or damaged ({error}). Download it again."
            ) from error
        if chosen.ndim == 4:
            # Final data (version 1) and preliminary ones (5) share a file: a day is in one of them.
            whole = ~np.isnan(chosen).any(axis=(2, 3))
            chosen = chosen[np.arange(len(index)), whole.argmax(1)]
        return chosen

    def refuse(
        self, index: np.ndarray, values: np.ndarray, lat: np.ndarray, lon: np.ndarray
    ) -> None:
        """Refuse what is missing, constant or out of all bounds, with the place and the time."""
        times, kelvin = self.times[index], values + self.shift
        unit = self.array.attrs.get("units")

        def first(wrong: np.ndarray) -> str:
            said = shown(unit)
            t, i, j = np.argwhere(wrong)[0]
            place = f"at {lat[i]:g} north, {lon[j]:g} east on {stamp(times[t])}"
            return f"{wrong.sum()} of {values.size}, the first {values[t, i, j]:g} {said} {place}"

        if (wrong := ~np.isfinite(values)).any():
            raise DataError(
                f"{self.path}: values are missing (NaN): {first(wrong)}. Nothing is filled in, and "
                f"data of land or of sea alone will not do. {_ISSUE}"
            )
        if (wrong := (kelvin < COLDEST) | (kelvin > WARMEST)).any():
            raise DataError(
                f"{self.path}: values cannot be temperatures on Earth ({COLDEST:g} to "
                f"{WARMEST:g} K): {first(wrong)}. Check the units of the file."
            )
        flat = values.reshape(len(values), -1)
        if (same := flat.min(1) == flat.max(1)).any():
            raise DataError(
                f"{self.path}: all values on {stamp(times[same.argmax()])} are "
                f"{flat[same.argmax(), 0]:g}: a part of the file that was never written? "
                "Download it again."
            )


def open_part(path: Path) -> Part:
    """Open one file and find its variable, axes and units."""
    data = gridded.open_file(path, PARAMETER)
    if not data.data_vars:
        # Filtered to nothing: say what there is.
        data = gridded.open_file(path)
    array = gridded.variable(data, NAMES, PARAMETER, "temperature at two metres", path)
    array, time, times = _times(array, path)
    alone = [d for d in array.dims if array.sizes[d] == 1 and d not in (time, "expver")]
    array = array.squeeze(alone)
    grid, array = latlon.on_grid(array, path)
    extra = [d for d in array.dims[:-2] if d not in (time, "expver")]
    if extra:
        raise DataError(
            f"{path}: expected {array.name} along time, latitude and longitude; it also has "
            f"{', '.join(f'{d} ({array.sizes[d]})' for d in extra)}. Select one of each."
        )
    if "expver" in array.dims:
        array = array.sortby("expver").transpose(time, "expver", *array.dims[-2:])
    return Part(path, array.rename({time: "time"}), grid, times, _shift(array, path))


def _times(array: Any, path: Path) -> tuple[Any, str, np.ndarray]:
    """The array with a time axis, its name, and the times that the values are valid for."""
    axes = [d for d in array.dims if str(d).lower() in TIMES]
    single = [n for n in TIMES if n in array.coords and array[n].ndim == 0]
    if not axes and single:
        array, axes = array.expand_dims(single[0]), single[:1]
    if len(axes) != 1:
        raise DataError(
            f"{path}: expected one axis of time ({', '.join(TIMES)}), got the axes "
            f"{', '.join(map(str, array.dims))}."
        )
    for name in (*(n for n in TIMES if n in array.coords), axes[0]):
        if name in array.coords and array[name].dims == (axes[0],):
            values = np.asarray(array[name].values)
            if not np.issubdtype(values.dtype, np.datetime64) or np.isnat(values).any():
                break
            return array, axes[0], values.astype("datetime64[s]")
    raise DataError(
        f"{path}: the times of {axes[0]} could not be understood; expected CF units such as "
        "'hours since 1900-01-01' in the standard calendar."
    )


def _shift(array: Any, path: Path) -> float:
    """What takes the stated unit to Kelvin."""
    unit = str(array.attrs.get("units", "")).strip().lower().replace(" ", "_")
    if unit in _KELVIN:
        return 0.0
    if unit in _CELSIUS:
        return ZERO_CELSIUS
    if unit:
        raise DataError(
            f"{path}: expected {array.name} in Kelvin or Celsius, got units "
            f"{shown(array.attrs['units'])}. {_ISSUE}"
        )
    raise DataError(
        f"{path}: {array.name} has no units. State them in its attribute `units`: K or degC."
    )


def stamp(time: np.datetime64) -> str:
    """A time as people write it."""
    return str(time.astype("datetime64[m]")).replace("T", " ")


def _slice(index: np.ndarray) -> slice | np.ndarray:
    """The index as a slice where it is one: readers are much quicker with it."""
    steps = np.unique(np.diff(index))
    if len(steps) > 1:
        return index
    step = int(steps[0]) if len(steps) else 1
    stop = int(index[-1]) + step
    return slice(int(index[0]), stop if stop >= 0 else None, step)


_CHUNK = 24
"""Frames read at once: a hundred megabytes at 0.25 degrees."""


@dataclass(frozen=True, eq=False)
class Weather:
    """Files of one grid, in the order of time."""

    where: Path
    parts: tuple[Part, ...]

    @classmethod
    def open(cls, where: Path) -> Weather:
        """A file, a folder of files or a pattern; refuses files that do not go together."""
        parts = sorted((open_part(p) for p in gridded.find(where)), key=lambda p: p.times[0])
        for part in parts[1:]:
            if part.grid != parts[0].grid:
                raise DataError(
                    f"{where}: the files have different grids. {parts[0].path.name}: "
                    f"{parts[0].grid}; {part.path.name}: {part.grid}. Keep those of one grid."
                )
        return cls(where, tuple(parts))

    @property
    def grid(self) -> Grid:
        """Where its points are."""
        return self.parts[0].grid

    @property
    def times(self) -> np.ndarray:
        """All times, in order; a time that comes twice is refused."""
        times = np.concatenate([p.times for p in self.parts])
        order = np.argsort(times, kind="stable")
        twice = np.flatnonzero(np.diff(times[order]) == np.timedelta64(0, "s"))
        if len(twice):
            owner = np.repeat(np.arange(len(self.parts)), [len(p.times) for p in self.parts])
            names = sorted({self.parts[owner[order[twice[0] + k]]].path.name for k in (0, 1)})
            raise DataError(
                f"{self.where}: {stamp(times[order][twice[0]])} comes twice, in "
                f"{' and '.join(names)} ({len(twice)} times in all). Keep one of them."
            )
        return times[order]

    def schedule(self, hour: int, step_hours: int, first: str = "", last: str = "") -> np.ndarray:
        """The times at an hour of the day and every `step_hours` on, without a gap.

        From the first of them in the files to the last, or between two dates.
        """
        have, step = self.times, _hours(step_hours)
        day = np.datetime64(first or have[0], "D").astype("datetime64[s]")
        anchor = day + _hours(hour)
        wanted = have[(have - anchor) % step == _hours(0)]
        if first:
            wanted = wanted[wanted >= day]
        if last:
            wanted = wanted[wanted < np.datetime64(last, "D") + np.timedelta64(1, "D")]
        if not len(wanted):
            self._refuse_clock(f"{hour:02d}:00 UTC and every {step_hours} h on", first, last)
        start = day + _hours(hour % step_hours) if first else wanted[0]
        stop = np.datetime64(last, "D") + np.timedelta64(1, "D") if last else wanted[-1] + step
        full = np.arange(start, stop.astype("datetime64[s]"), step)
        gaps = full[~np.isin(full, wanted)]
        if len(gaps):
            raise DataError(
                f"{self.where}: {len(gaps)} of {len(full)} times are missing between "
                f"{stamp(full[0])} and {stamp(full[-1])}: {_few(gaps)}. Download them; a gap is "
                "not filled. Or leave it out with --problem.first and --problem.last."
            )
        return wanted

    def _refuse_clock(self, wanted: str, first: str, last: str) -> None:
        times = self.times
        clocks = sorted({str(t)[11:16] for t in times.astype("datetime64[m]")})
        between = f"{f' from {first}' if first else ''}{f' to {last}' if last else ''}"
        raise DataError(
            f"{self.where}: no time at {wanted}{between}. There are {stamp(times[0])} to "
            f"{stamp(times[-1])} at {', '.join(clocks[:24])}. Choose --problem.hour, "
            "--problem.step-hours, --problem.first and --problem.last accordingly."
        )

    def frames(
        self, times: np.ndarray, latitudes: np.ndarray, longitudes: np.ndarray
    ) -> np.ndarray:
        """Kelvin at these times and places (times, latitudes, longitudes), in float32."""
        rows, columns = self.grid.find(latitudes, longitudes)
        if (rows < 0).any() or (columns < 0).any():
            raise DataError(
                f"{self.where}: it has {self.grid}. Wanted: {len(latitudes)} x {len(longitudes)} "
                f"points, latitude {latitudes[0]:g} to {latitudes[-1]:g}, longitude "
                f"{longitudes[0]:g} to {longitudes[-1]:g}, every "
                f"{longitudes[1] - longitudes[0]:g} degrees. {_remedy(self.grid)}"
            )
        out = np.empty((len(times), len(rows), len(columns)), dtype=np.float32)
        done = 0
        for part in self.parts:
            place = np.searchsorted(times, part.times)
            place = np.where(place < len(times), place, 0)
            here = np.flatnonzero(times[place] == part.times)
            for start in range(0, len(here), _CHUNK):
                piece = here[start : start + _CHUNK]
                values = part.values(piece, rows)[:, :, columns]
                part.refuse(piece, values, latitudes, longitudes)
                out[place[piece]] = values + np.float32(part.shift)
                done += len(piece)
        assert done == len(times)
        return out


def _remedy(grid: Grid) -> str:
    north, west, south, east = grid.area
    if not grid.globe:
        return (
            "The file is a region: train on it with "
            f"--problem.area {north:g} {west:g} {south:g} {east:g} --problem.resolution {grid.rows}"
        )
    return f"Choose a --problem.resolution that divides {grid.rows}, the file's own."


def _hours(count: int) -> np.timedelta64:
    return np.timedelta64(count * 3600, "s")


def _few(times: np.ndarray) -> str:
    names = [stamp(t) for t in times[:3]]
    return ", ".join(names) + (", ..." if len(times) > 3 else "")
