"""The temperature at two metres from files of ERA5 and the like: when, where, in Kelvin.

Reads lazily: opening looks at names, axes and times alone, `frames` at the values asked for.
Values are checked as they are read, and refused where they are missing or cannot be Kelvin.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ipot.data import gridded
from ipot.data.latlon import Grid
from ipot.data.temperature import Part, open_part, stamp
from ipot.errors import DataError

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
