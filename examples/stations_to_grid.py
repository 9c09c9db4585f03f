"""Stations in, a map out: xarray objects, longitude and latitude, gaps in the records.

    pip install 'ipot[weather]'
    python examples/stations_to_grid.py [--minutes 2]

Storms cross the sea: round vortices in which pressure and wind are in balance. Sixty stations
report the pressure, four times out of five, and a map of the wind is asked for.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

import ipot

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--minutes", type=float, default=2.0)
parser.add_argument("--out", type=Path, default=Path("runs/stations_to_grid"))
flags, rng = parser.parse_args(), np.random.default_rng(0)
STORMS, HOURS, STATIONS = 80, np.arange(0, 60, 6), 60
east = rng.uniform(-25, -15, (STORMS, 1)) + rng.uniform(0.3, 0.5, (STORMS, 1)) * HOURS
north = rng.uniform(42, 54, (STORMS, 1)) + rng.uniform(-0.05, 0.15, (STORMS, 1)) * HOURS
depth, size = rng.uniform([10, 150], [40, 600], (STORMS, 2)).repeat(len(HOURS), 0).T


def storms(lon, lat):
    """Pressure below normal in hPa and wind in m/s, (frames, *places)."""
    x, y, d, s = (a.reshape(-1, *[1] * lon.ndim) for a in (east, north, depth, size))
    r = 111 * np.hypot((lon - x) * np.cos(np.radians(lat)), lat - y) / s
    return d * np.exp(-(r**2) / 2), np.sqrt(100 * d / 1.2) * r * np.exp(-(r**2) / 4)


time = np.datetime64("2024-01-01T00") + 6 * np.arange(east.size).astype("timedelta64[h]")
lon, lat = rng.uniform([[-20], [42]], [[10], [62]], (2, STATIONS))
p = np.where(rng.uniform(size=(len(time), STATIONS)) < 0.8, storms(lon, lat)[0], np.nan)
places = {"lon": ("station", lon), "lat": ("station", lat)}
stations = xr.Dataset({"p": (("time", "station"), p)}, {"time": time, **places})
lon, lat = np.arange(-20.0, 11), np.arange(42.0, 63)
about = {"units": "m s-1", "long_name": "wind"}
wind = (("time", "lat", "lon"), storms(*np.meshgrid(lon, lat))[1], about)
grid = xr.Dataset({"wind": wind}, {"time": time, "lat": lat, "lon": lon})

known, new = stations.sel(time=time[:-50]), time[-50:]
model = ipot.fit(known, inputs="p", targets=grid, minutes=flags.minutes)
found = xr.concat([model.predict(stations.sel(time=[t])) for t in new], "time")
error = float(np.sqrt(((found - grid.wind) ** 2).mean() / (grid.wind.sel(time=new) ** 2).mean()))
figure, axes = plt.subplots(1, 2, figsize=(10, 3.5), layout="constrained")
for side, name, field in zip(axes, ("truth", "from the dots"), (grid.wind, found), strict=True):
    field.sel(time=new[4]).plot(ax=side, vmin=0, vmax=35)
    side.set_title(name)
side.plot(stations.lon, stations.lat, "w.")
flags.out.mkdir(parents=True, exist_ok=True)
figure.savefig(flags.out / "map.png")
print(f"{len(new)} new maps: error {100 * error:.1f} %; one of them is in {flags.out}/map.png")
