# The first hour of a climate scientist: a netCDF series of maps, and stations in the same region.
# In an empty folder, with the extra `weather` installed: bash climate.sh
set -e

# Files in the place of yours: maps and stations for 400 days, and for 40 days that nobody has seen.
python - <<'EOF'
import numpy as np
import xarray as xr


def waves(day, lat, lon):
    """Temperatures: two waves that travel at speeds of their own, and steepen."""
    wave = np.sin(lon / 20 - 0.3 * day) * np.cos(lat / 20)
    wave = wave + np.cos(2 * lon / 20 + lat / 20 - 0.37 * day)
    return 280 + 10 * np.tanh(wave)


day = np.arange(440)
time = np.datetime64("2024-01-01") + day
lat, lon = np.arange(30.0, 61, 5), np.arange(-20.0, 21, 5)
maps = waves(*np.meshgrid(day, lat, lon, indexing="ij"))
about = {"units": "K"}
grid = xr.Dataset({"t": (("time", "lat", "lon"), maps, about)}, {"time": time, "lat": lat, "lon": lon})
rng = np.random.default_rng(0)
places = {"lat": ("station", rng.uniform(30, 60, 25)), "lon": ("station", rng.uniform(-20, 20, 25))}
known = waves(day[:, None], places["lat"][1], places["lon"][1])
stations = xr.Dataset({"t": (("time", "station"), known, about)}, {"time": time, **places})
for name, ds in ("weather", grid), ("stations", stations):
    ds.isel(time=slice(400)).to_netcdf(f"{name}.nc")
    ds.isel(time=slice(400, None)).to_netcdf(f"new_{name}.nc")
EOF

# A forecast: three maps in, the next two out.
ipot data inspect weather.nc
ipot fit weather.nc --inputs t --targets t --history 3 --lead 2 --minutes 3 --out forecast
ipot evaluate forecast new_weather.nc --json
ipot plot forecast new_weather.nc --out forecast-pictures
ipot predict forecast new_weather.nc --out tomorrow.nc

# Maps from stations, at the same time.
ipot fit stations.nc --inputs t --targets-from weather.nc --targets t --lead 0 --minutes 3 --out maps
ipot evaluate maps new_stations.nc --targets-from new_weather.nc --json
# The map of the last time, and those of all.
ipot predict maps new_stations.nc --out map.nc
ipot predict maps new_stations.nc --all-times --out all_maps.nc
