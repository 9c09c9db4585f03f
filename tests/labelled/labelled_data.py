"""Small made-up fields with named dimensions, in many dialects."""

from __future__ import annotations

import numpy as np
import pytest

from ipot.formats.series.samples import from_xarray

xr = pytest.importorskip("xarray", reason="the extra `weather` is not installed")


def truth(steps, latitudes, longitudes, shift=0.0):
    """Values that differ at every time and place (times, *places)."""
    t = np.asarray(steps, dtype=float).reshape(-1, *(1,) * np.ndim(latitudes))
    lat, lon = np.radians(latitudes), np.radians(np.mod(longitudes, 360))
    wave = np.sin(lat) + np.cos(lon - 0.1 * t) + 0.01 * t + shift
    return wave.astype(np.float32)


def days(count, start="2020-01-01"):
    return (np.datetime64(start, "D") + np.arange(count)).astype("datetime64[ns]")


def grid(
    count=20,
    latitudes=(60.0, 50.0, 40.0),
    longitudes=(0.0, 10.0, 20.0, 30.0),
    *,
    names=("time", "latitude", "longitude"),
    times=None,
    variables=("t2m",),
):
    """Fields on a grid, one every day."""
    times = days(count) if times is None else times
    lat, lon = np.meshgrid(latitudes, longitudes, indexing="ij")
    data = {
        name: (names, truth(np.arange(len(times)), lat, lon, shift=i), {"units": "K"})
        for i, name in enumerate(variables)
    }
    coords = dict(zip(names, (times, np.asarray(latitudes), np.asarray(longitudes)), strict=True))
    return xr.Dataset(data, coords=coords)


def stations(count=20, number=5, *, seed=0, names=("lat", "lon")):
    """The same field at scattered points."""
    random = np.random.default_rng(seed)
    lat, lon = random.uniform(40, 60, number), random.uniform(0, 30, number)
    return xr.Dataset(
        {"t2m": (("time", "station"), truth(np.arange(count), lat, lon), {"units": "K"})},
        coords={
            "time": days(count),
            names[0]: ("station", lat),
            names[1]: ("station", lon),
            "station": [f"S{i}" for i in range(number)],
        },
    )


def unit_vectors(points):
    """Of (longitude, latitude) in degrees."""
    lon, lat = np.radians(np.asarray(points, dtype=float)).T[:2]
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], 1)


def forecast(data, **options):
    """Samples of one variable that forecasts itself."""
    return from_xarray(data, **{"inputs": "t2m", "targets": "t2m", **options})
