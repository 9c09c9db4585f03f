"""Small files of made-up temperature, in all the dialects that real ones come in."""

from __future__ import annotations

import numpy as np
import pytest

from ipot.data.weather import Weather

xr = pytest.importorskip("xarray", reason="the extra `weather` is not installed")

ROWS = 18  # ten degrees


def truth(days, latitudes, longitudes):
    """A temperature that differs at every time and place: (days, latitude, longitude)."""
    day, lat, lon = np.meshgrid(days, latitudes, np.mod(longitudes, 360), indexing="ij")
    value = 280 - 40 * np.sin(np.radians(lat)) ** 2 + 5 * np.cos(np.radians(lon - 20 * day))
    return (value + 0.01 * day + lat / 100).astype(np.float32)


def dataset(
    days=60,
    *,
    start="2018-01-01",
    step_hours=24,
    rows=ROWS,
    south_first=False,
    signed=False,
    celsius=False,
    names=("time", "latitude", "longitude"),
    variable="t2m",
    pole=True,
):
    """A global data set; the dialect is chosen by keywords."""
    d = 180 / rows
    latitudes = 90 - d * np.arange(rows + pole)
    longitudes = d * np.arange(2 * rows) - (180 if signed else 0)
    times = np.datetime64(start, "s") + np.arange(days) * np.timedelta64(step_hours * 3600, "s")
    values = truth(np.arange(days), latitudes, longitudes)
    if south_first:
        latitudes, values = latitudes[::-1], values[:, ::-1]
    array = xr.DataArray(
        values - np.float32(273.15 if celsius else 0),
        dims=names,
        coords=dict(
            zip(names, (times.astype("datetime64[ns]"), latitudes, longitudes), strict=True)
        ),
        attrs={"units": "degC" if celsius else "K", "long_name": "2 metre temperature"},
    )
    return array.to_dataset(name=variable)


def write_netcdf(path, data=None, **dialect):
    """As a netCDF file."""
    (dataset(**dialect) if data is None else data).to_netcdf(path, engine="netcdf4")
    return path


def write_zarr(path, data=None, **dialect):
    """As a Zarr store, ten days a chunk."""
    data = dataset(**dialect) if data is None else data
    encoding = {name: {"chunks": (10, *a.shape[1:])} for name, a in data.data_vars.items()}
    data.to_zarr(path, mode="w", encoding=encoding, zarr_format=3, consolidated=False)
    return path


def write_grib(path, days=20, rows=ROWS, *, short_name="2t", hours=(0,), start="2018-01-01"):
    """As GRIB, one message for each time."""
    eccodes = pytest.importorskip("eccodes")
    d = 180 / rows
    latitudes, longitudes = 90 - d * np.arange(rows + 1), d * np.arange(2 * rows)
    with path.open("wb") as file:
        for day in range(days):
            for hour in hours:
                date = np.datetime64(start, "D") + day
                message = eccodes.codes_grib_new_from_samples("regular_ll_sfc_grib1")
                for key, value in {
                    "shortName": short_name,
                    "dataDate": int(str(date).replace("-", "")),
                    "dataTime": 100 * hour,
                    "Ni": 2 * rows,
                    "Nj": rows + 1,
                    "latitudeOfFirstGridPointInDegrees": 90.0,
                    "latitudeOfLastGridPointInDegrees": -90.0,
                    "longitudeOfFirstGridPointInDegrees": 0.0,
                    "longitudeOfLastGridPointInDegrees": 360 - d,
                    "iDirectionIncrementInDegrees": d,
                    "jDirectionIncrementInDegrees": d,
                    "bitsPerValue": 24,
                }.items():
                    eccodes.codes_set(message, key, value)
                values = truth([day + hour / 24], latitudes, longitudes)
                eccodes.codes_set_values(message, values.astype(float).ravel())
                eccodes.codes_write(message, file)
                eccodes.codes_release(message)
    return path


def read_all(path):
    """All frames of a file at ten degrees, checked as they are read."""
    weather = Weather.open(path)
    lines = 90 - 10.0 * np.arange(18), 10.0 * np.arange(36)
    return weather.frames(weather.schedule(0, 24), *lines)
