"""Files of weather in which something is off: each is refused and named."""

from __future__ import annotations

import numpy as np
import pytest

from ipot.data import gridded
from ipot.data.weather import Weather
from ipot.errors import DataError

from . import weather_files as made

LATITUDES = np.array([-80.0, 0.0, 10.0, 90.0])
LONGITUDES = np.array([0.0, 10.0, 200.0, 350.0])


def damaged(tmp_path, change, **dialect):
    data = made.dataset(**{"days": 12} | dialect)
    return made.write_netcdf(tmp_path / "bad.nc", change(data))


def set_(data, value, **where):
    data["t2m"][where] = value
    return data


CHANGES = {
    "15 K": (
        lambda d: set_(d, 15.0, time=4, latitude=2, longitude=3),
        r"1 of 7776, the first 15 'K' at 70 north, 30 east on 2018-01-05",
    ),
    "Celsius that says Kelvin": (lambda d: d - 273.15, r"cannot be temperatures.*Check the units"),
    "NaN over land": (
        lambda d: set_(d, np.nan, time=7, latitude=4),
        r"missing \(NaN\): 36 of .* 50 north, 0 east on 2018-01-08.*Nothing is filled",
    ),
    "infinite": (lambda d: set_(d, np.inf, time=1), r"missing"),
    "a frame that was never written": (
        lambda d: set_(d, 273.15, time=3),
        r"all values on 2018-01-04 00:00 are 273\.15",
    ),
    "a gap": (lambda d: d.isel(time=[0, 1, 2, 4, 5, 9]), r"4 of 10 times.*2018-01-04"),
    "the same day twice": (lambda d: d.isel(time=[0, 1, 1, 2]), r"2018-01-02 00:00 comes twice"),
    "another variable": (lambda d: d.rename(t2m="sst"), r"temperature at two metres.*there is sst"),
    "two variables": (lambda d: d.assign(T2M=d["t2m"] + 1), r"more than one.*t2m, T2M"),
    "no variable": (lambda d: d.drop_vars("t2m"), r"none that could be read"),
    "no units": (lambda d: strip(d, None), r"has no units"),
    "other units": (lambda d: strip(d, "F"), r"Kelvin or Celsius, got units 'F'"),
    "no latitudes": (lambda d: d.drop_vars("latitude"), r"an axis latitude or lat with coord"),
    "one latitude": (lambda d: d.isel(latitude=[3]), r"an axis latitude"),
    "levels": (
        lambda d: d.expand_dims(level=[1, 2]),
        r"along time, latitude and longitude; it also has level \(2\)",
    ),
    "no time": (lambda d: d.isel(time=0).drop_vars("time"), r"expected one axis of time"),
    "times in words": (
        lambda d: d.assign_coords(time=[f"day {i}" for i in range(12)]),
        r"times of time could not be understood",
    ),
    "uneven latitudes": (
        lambda d: moved(d, "latitude", 5, 41.5),
        r"latitudes must be equally spaced.*values 4 and 5 are 8\.5 apart",
    ),
    "NaN longitude": (lambda d: moved(d, "longitude", 5, np.nan), r"finite values of longitude"),
    "exchanged axes": (
        lambda d: d.rename(latitude="longitude", longitude="latitude"),
        r"expected -90 to 90. Are the axes exchanged",
    ),
    "two steps": (
        lambda d: d.isel(longitude=slice(None, None, 2)),
        r"10 degrees from one latitude to the next and 20 between longitudes",
    ),
    "cell centres": (
        lambda d: d.isel(latitude=slice(None, -1)).assign_coords(
            latitude=85.0 - 10 * np.arange(18)
        ),
        r"not those of a latitude-longitude grid through the pole",
    ),
    "twice around": (
        lambda d: made.xr.concat([d, d.assign_coords(longitude=d.longitude + 360)], "longitude"),
        r"72 longitudes every 10 degrees go around twice",
    ),
}


def strip(data, units):
    data["t2m"].attrs = {} if units is None else {"units": units}
    return data


def moved(data, name, index, value):
    values = data[name].values.copy()
    values[index] = value
    return data.assign_coords({name: values})


@pytest.mark.parametrize(("change", "says"), CHANGES.values(), ids=list(CHANGES))
def test_what_is_off_is_named(change, says, tmp_path):
    with made.xr.set_options(keep_attrs=True):
        path = damaged(tmp_path, change)
    with pytest.raises(DataError, match=says) as caught:
        made.read_all(path)
    assert str(path) in str(caught.value)


def test_files_that_do_not_go_together(tmp_path):
    made.write_netcdf(tmp_path / "a.nc", days=3)
    made.write_netcdf(tmp_path / "b.nc", days=3, start="2018-01-04", rows=9)
    with pytest.raises(DataError, match=r"different grids. a\.nc: 19 x 36.*b\.nc: 10 x 18"):
        Weather.open(tmp_path)
    made.write_netcdf(tmp_path / "b.nc", days=3, start="2018-01-03")
    with pytest.raises(DataError, match=r"2018-01-03 00:00 comes twice, in a\.nc and b\.nc"):
        made.read_all(tmp_path)


def test_what_is_no_file_of_weather(tmp_path):
    with pytest.raises(DataError, match=r"nowhere: no such file.*pattern"):
        Weather.open(tmp_path / "nowhere")
    with pytest.raises(DataError, match="no GRIB, netCDF or Zarr file in this folder"):
        Weather.open(tmp_path)
    page = tmp_path / "page.nc"
    page.write_text("<html>sign in</html>")
    with pytest.raises(DataError, match=r"page\.nc: expected GRIB, netCDF or Zarr.*<html>"):
        Weather.open(page)
    page.write_bytes(b"PK\x03\x04rest")
    with pytest.raises(DataError, match="unpack it"):
        Weather.open(page)
    (tmp_path / "empty.grib").write_bytes(b"")
    with pytest.raises(DataError, match=r"empty\.grib: expected GRIB"):
        Weather.open(tmp_path / "empty.grib")


@pytest.mark.parametrize("kept", [0.3, 0.6, 0.97])
@pytest.mark.parametrize("write", [made.write_netcdf, made.write_grib])
def test_a_truncated_file(write, kept, tmp_path):
    path = write(tmp_path / "cut", days=12)
    content = path.read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(DataError, match=r"cut.*truncated.*again"):
        made.read_all(path)


def test_a_truncated_classic_netcdf(tmp_path):
    path = tmp_path / "cut.nc"
    made.dataset(days=12).to_netcdf(path, engine="netcdf4", format="NETCDF3_64BIT")
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3])
    with pytest.raises(DataError, match=r"cut\.nc: "):
        made.read_all(path)


@pytest.mark.parametrize("number", [1, 3])
def test_a_damaged_grib_message(number, tmp_path):
    """A reader would pass over it; the last one would leave no gap."""
    path = made.write_grib(tmp_path / "a.grib", days=4)
    content = bytearray(path.read_bytes())
    start = number * len(content) // 4
    assert content[start : start + 4] == b"GRIB"
    content[start : start + 4] = b"BIRG"
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"a\.grib: the GRIB message at byte {start} of"):
        Weather.open(path)


def test_a_grib_without_its_end(tmp_path):
    path = made.write_grib(tmp_path / "a.grib", days=4)
    path.write_bytes(path.read_bytes() + bytes(100))  # tapes are padded; that is no damage
    assert len(Weather.open(path).times) == 4
    path.write_bytes(path.read_bytes()[:-150])
    with pytest.raises(DataError, match=r"a\.grib: the GRIB message at byte.*no end \(7777\)"):
        Weather.open(path)


def test_grib_of_another_parameter(tmp_path):
    path = made.write_grib(tmp_path / "a.grib", days=2, short_name="skt")
    with pytest.raises(DataError, match=r"temperature at two metres.*there is skt"):
        Weather.open(path)


def test_zarr_with_a_chunk_missing(tmp_path):
    path = made.write_zarr(tmp_path / "a.zarr", days=30)
    chunk = next(p for p in (path / "t2m" / "c").rglob("*") if p.is_file())
    chunk.unlink()
    with pytest.raises(DataError, match=r"1 of 3 chunks of t2m are missing"):
        Weather.open(path)
    (path / "zarr.json").write_text("{")
    with pytest.raises(DataError, match=r"a\.zarr: cannot be opened as Zarr"):
        Weather.open(path)


def test_places_that_the_file_has_not(tmp_path):
    weather = Weather.open(made.write_netcdf(tmp_path / "a.nc", days=3))
    with pytest.raises(DataError, match=r"every 10 degrees.*Choose a --problem.resolution.*18"):
        weather.frames(weather.times, np.array([0.0, 5.0]), LONGITUDES)
    region = made.dataset(days=3).isel(latitude=slice(2, 6), longitude=slice(3, 9))
    weather = Weather.open(made.write_netcdf(tmp_path / "b.nc", region))
    with pytest.raises(DataError, match=r"--problem.area 70 30 40 80 --problem.resolution 18"):
        weather.frames(weather.times, LATITUDES, LONGITUDES)


def test_without_the_extra_the_message_says_what_to_install(tmp_path, monkeypatch):
    path = made.write_netcdf(tmp_path / "a.nc", days=3)
    monkeypatch.setattr(gridded.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(DataError, match=r"xarray and netCDF4.*pip install 'ipot\[weather\]'"):
        Weather.open(path)
