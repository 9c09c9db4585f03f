"""A forecast with xarray: frames in, later frames out, on coordinates of your choice.

    pip install 'ipot[weather]'
    python examples/forecast.py [--minutes 1.5]

A row of pendulums joined by springs swings so far that it is not linear: u_tt = u_xx - sin u, the
sine-Gordon equation. Three frames go in, since one does not tell which way it swings, and four
come out.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

import ipot

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--minutes", type=float, default=1.5)
parser.add_argument("--out", type=Path, default=Path("runs/forecast"))
flags = parser.parse_args()

FRAMES, x, dt = 2000, np.linspace(0, 10, 41), 0.05
u = 2.5 * np.sin(np.pi * x / 10) + 0.5 * np.sin(np.pi * x / 5)
before, frames = u, []
for step in range(10 * FRAMES + 70):
    if step % 10 == 0:
        frames.append(u)
    push = (u[2:] - 2 * u[1:-1] + u[:-2]) / (x[1] - x[0]) ** 2 - np.sin(u[1:-1])
    u, before = np.pad(2 * u[1:-1] - before[1:-1] + dt**2 * push, 1), u
time = np.datetime64("2024-01-01") + 500 * np.arange(len(frames)).astype("timedelta64[ms]")
about = {"units": "rad", "long_name": "angle"}
ds = xr.Dataset({"u": (("time", "x"), np.stack(frames), about)}, {"time": time, "x": x})

past, new = ds.isel(time=slice(FRAMES)), ds.isel(time=slice(FRAMES, None))
model = ipot.fit(past, inputs="u", targets="u", history=3, lead=4, minutes=flags.minutes)
model.save(flags.out / "model", overwrite=True)

elsewhere = {"x": np.linspace(0, 10, 201)}
forecast = model.predict(new.isel(time=slice(3)), on=elsewhere)  # from the last three frames
truth = new.u.isel(time=slice(3, None)).interp(x=elsewhere["x"], method="cubic")
error = float(np.sqrt(((forecast - truth) ** 2).mean() / (truth**2).mean()))
truth.plot.line(x="x", color="k", linestyle="--", add_legend=False)
forecast.plot.line(x="x", add_legend=False)
plt.title("four frames from now on: forecast, and dashed the truth")
plt.savefig(flags.out / "forecast.png")
forecast.to_netcdf(flags.out / "forecast.nc")
print(forecast.coords, forecast.attrs)
print(f"error {100 * error:.1f} % at {forecast.shape} times and places; {flags.out}/forecast.png")
