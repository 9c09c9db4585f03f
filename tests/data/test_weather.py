"""Files of weather: every dialect gives the same numbers, everything that is off is named."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch

from ipot.data import gridded, landsea
from ipot.data.latlon import Grid
from ipot.data.weather import Weather
from ipot.errors import DataError

from . import weather_files as made

LATITUDES = np.array([-80.0, 0.0, 10.0, 90.0])
LONGITUDES = np.array([0.0, 10.0, 200.0, 350.0])


def frames(path, days, **schedule):
    """Some days at some places, as read."""
    weather = Weather.open(path)
    times = weather.schedule(**{"hour": 0, "step_hours": 24} | schedule)
    return weather.frames(times[days], LATITUDES, LONGITUDES)


def expected(days):
    return made.truth(days, LATITUDES, LONGITUDES)


DIALECTS = {
    "plain": {},
    "south first": {"south_first": True},
    "signed longitudes": {"signed": True},
    "celsius": {"celsius": True},
    "short names": {"names": ("time", "lat", "lon")},
    "new names": {"names": ("valid_time", "latitude", "longitude")},
    "long variable": {"variable": "2m_temperature"},
    "upper case": {"variable": "T2M"},
    "grib name": {"variable": "2t"},
    "without the south pole": {"pole": False},
    "all of it": {
        "south_first": True,
        "signed": True,
        "celsius": True,
        "names": ("valid_time", "lat", "lon"),
        "variable": "VAR_2T",
    },
}


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=list(DIALECTS))
def test_every_dialect_gives_the_same_numbers(dialect, tmp_path):
    path = made.write_netcdf(tmp_path / "a.nc", days=9, **dialect)
    days = np.array([0, 3, 8])
    # 1e-4: what float32 loses on the way to Celsius and back.
    np.testing.assert_allclose(frames(path, days), expected(days), rtol=0, atol=1e-4)


def test_axes_in_another_order(tmp_path):
    data = made.dataset(days=9).transpose("longitude", "time", "latitude")
    path = made.write_netcdf(tmp_path / "a.nc", data)
    np.testing.assert_array_equal(frames(path, np.arange(9)), expected(np.arange(9)))


def test_a_repeated_meridian_is_one_point(tmp_path):
    data = made.dataset(days=3)
    last = data.isel(longitude=[0]).assign_coords(longitude=[360.0])
    path = made.write_netcdf(tmp_path / "a.nc", made.xr.concat([data, last], "longitude"))
    assert Weather.open(path).grid == Grid(18, 0, 0, 19, 36)
    np.testing.assert_array_equal(frames(path, np.arange(3)), expected(np.arange(3)))


def test_longitudes_that_wrap_in_the_middle(tmp_path):
    data = made.dataset(days=3).isel(longitude=[34, 35, 0, 1, 2])
    weather = Weather.open(made.write_netcdf(tmp_path / "a.nc", data))
    assert weather.grid == Grid(18, 0, 34, 19, 5)
    assert not weather.grid.globe
    got = weather.frames(weather.times, LATITUDES, np.array([-20.0, 0.0, 370.0]))
    np.testing.assert_array_equal(got, made.truth(range(3), LATITUDES, [340.0, 0.0, 10.0]))


def test_places_are_found_whatever_the_last_bit():
    grid = Grid(720, 0, 0, 721, 1440)
    rows, columns = grid.find(np.array([90 + 1e-12, -90.0, 89.9]), np.array([-1e-12, 360.0, -0.25]))
    assert rows.tolist() == [0, 720, -1]
    assert columns.tolist() == [0, 0, 1439]
    assert Grid(720, 128, -40, 33, 49).find(np.array([58.25]), np.array([2.25]))[1].tolist() == [-1]


def test_zarr_and_grib_hold_what_netcdf_does(tmp_path):
    days = np.arange(12)
    zarr = made.write_zarr(tmp_path / "a.zarr", days=12)
    np.testing.assert_array_equal(frames(zarr, days), expected(days))
    grib = made.write_grib(tmp_path / "a.grib", days=12)
    np.testing.assert_allclose(frames(grib, days), expected(days), rtol=0, atol=1e-4)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.grib", "a.zarr"]  # no index left


def test_content_counts_and_not_the_name(tmp_path):
    path = made.write_grib(tmp_path / "a.nc", days=2)
    assert gridded.kind_of(path) == "GRIB"
    assert len(Weather.open(path).times) == 2


def test_a_folder_and_a_pattern_are_one_record(tmp_path):
    for month in (2, 1):
        made.write_netcdf(tmp_path / f"{month}.nc", days=5, start=f"2018-01-0{1 + 5 * (month - 1)}")
    (tmp_path / "notes.txt").write_text("nothing to read")
    for where in (tmp_path, tmp_path / "*.nc"):
        weather = Weather.open(where)
        assert len(weather.schedule(0, 24)) == 10
        assert [part.path.name for part in weather.parts] == ["1.nc", "2.nc"]
        got = weather.frames(weather.times[3:7], LATITUDES, LONGITUDES)
        days = np.array([3, 4, 0, 1])  # each file counts from its own first day
        np.testing.assert_array_equal(got, expected(days))


def test_one_file_for_each_day(tmp_path):
    data = made.dataset(days=3)
    for day in range(3):
        made.write_netcdf(tmp_path / f"{day}.nc", data.isel(time=day))
    np.testing.assert_array_equal(frames(tmp_path, np.arange(3)), expected(np.arange(3)))


def test_two_versions_of_a_day(tmp_path):
    """Final days (version 1) and preliminary ones (5) in one file, each missing in the other."""
    data = made.dataset(days=6)
    final, preliminary = data.copy(deep=True), data.copy(deep=True)
    final["t2m"][4:] = np.nan
    preliminary["t2m"][:4] = np.nan
    both = made.xr.concat([preliminary, final], "expver").assign_coords(expver=[5, 1])
    path = made.write_netcdf(tmp_path / "a.nc", both)
    np.testing.assert_array_equal(frames(path, np.arange(6)), expected(np.arange(6)))
    with made.xr.set_options(keep_attrs=True):
        full = made.xr.concat([data + 1, data], "expver").assign_coords(expver=[5, 1])
    path = made.write_netcdf(tmp_path / "full.nc", full)
    np.testing.assert_array_equal(frames(path, np.arange(6)), expected(np.arange(6)))
    both["t2m"][:, 2, 3, 3] = np.nan
    path = made.write_netcdf(tmp_path / "b.nc", both)
    with pytest.raises(DataError, match=r"b\.nc.*missing.*2018-01-03"):
        frames_everywhere(path)


def frames_everywhere(path):
    weather = Weather.open(path)
    lines = 90 - 10.0 * np.arange(18), 10.0 * np.arange(36)
    return weather.frames(weather.schedule(0, 24), *lines)


def test_hours_are_chosen_by_the_clock(tmp_path):
    path = made.write_netcdf(tmp_path / "a.nc", days=24, step_hours=6, start="2018-01-01T06:00")
    days = np.array([1, 2])
    np.testing.assert_array_equal(frames(path, days, hour=0), expected([7, 11]))
    np.testing.assert_array_equal(frames(path, days, hour=12), expected([5, 9]))
    np.testing.assert_array_equal(frames(path, days, hour=0, step_hours=12), expected([3, 5]))
    np.testing.assert_array_equal(frames(path, days, hour=6, step_hours=48), expected([8, 16]))
    np.testing.assert_array_equal(frames(path, days, first="2018-01-04"), expected([15, 19]))
    with pytest.raises(DataError, match=r"no time at 03:00 UTC.*06:00.*--problem.hour"):
        frames(path, days, hour=3)


def test_dates_bound_the_record(tmp_path):
    weather = Weather.open(made.write_netcdf(tmp_path / "a.nc", days=60))
    times = weather.schedule(0, 24, "2018-01-10", "2018-01-20")
    assert (str(times[0])[:10], str(times[-1])[:10], len(times)) == ("2018-01-10", "2018-01-20", 11)
    with pytest.raises(DataError, match=r"9 of 69 times are missing.*2017-12-24"):
        weather.schedule(0, 24, "2017-12-23", "2018-03-01")
    with pytest.raises(DataError, match=r"4 of 64 times are missing.*2018-03-02"):
        weather.schedule(0, 24, "", "2018-03-05")


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
        frames_everywhere(path)
    assert str(path) in str(caught.value)


def test_files_that_do_not_go_together(tmp_path):
    made.write_netcdf(tmp_path / "a.nc", days=3)
    made.write_netcdf(tmp_path / "b.nc", days=3, start="2018-01-04", rows=9)
    with pytest.raises(DataError, match=r"different grids. a\.nc: 19 x 36.*b\.nc: 10 x 18"):
        Weather.open(tmp_path)
    made.write_netcdf(tmp_path / "b.nc", days=3, start="2018-01-03")
    with pytest.raises(DataError, match=r"2018-01-03 00:00 comes twice, in a\.nc and b\.nc"):
        frames_everywhere(tmp_path)


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
    with pytest.raises(DataError, match=r"cut: .*truncated.*Download it again"):
        frames_everywhere(path)


def test_a_truncated_classic_netcdf(tmp_path):
    path = tmp_path / "cut.nc"
    made.dataset(days=12).to_netcdf(path, engine="netcdf4", format="NETCDF3_64BIT")
    content = path.read_bytes()
    path.write_bytes(content[: len(content) * 2 // 3])
    with pytest.raises(DataError, match=r"cut\.nc: "):
        frames_everywhere(path)


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


def test_the_shipped_mask_has_the_counts_that_are_printed():
    mask = landsea.shipped()
    assert mask.fraction.shape == (90, 180)
    assert int((mask.fraction >= 0.5).sum()) == 5371
    assert int((mask.fraction < 0.5).sum()) == 10829
    assert sum(landsea.PAPER_COUNTS) == 90 * 180
    cities = {"Kinshasa": (-4.3, 15.3), "Moscow": (55.8, 37.6), "Denver": (39.7, -105.0)}
    waters = {"Pacific": (0.0, -140.0), "Atlantic": (30.0, -40.0), "Greenwich": (0.0, 359.9)}
    for name, (lat, lon) in (cities | waters).items():
        land = mask.land(torch.tensor([lat]), torch.tensor([lon]))
        assert bool(land) == (name in cities), name


def test_a_mask_between_its_points():
    mask = landsea.shipped()
    lat, lon = torch.meshgrid(90 - 2.0 * torch.arange(90), 2.0 * torch.arange(180), indexing="ij")
    assert torch.equal(mask.smooth(lat, lon), mask.fraction)
    assert torch.equal(mask.land(lat, lon), mask.fraction >= 0.5)
    # Float32 coordinates on the line between two cells, from either side and once around.
    assert torch.equal(mask.land(lat - 0.9, lon + 0.9), mask.fraction >= 0.5)
    assert torch.equal(mask.land(lat, lon - 360), mask.fraction >= 0.5)
    middle = (mask.fraction + mask.fraction.roll(-1, 1)) / 2
    torch.testing.assert_close(mask.smooth(lat, lon + 1), middle)


def mask_file(path, values, rows=18):
    lat, lon = 90 - 180 / rows * np.arange(rows + 1), 180 / rows * np.arange(2 * rows)
    data = made.xr.DataArray(values, {"latitude": lat, "longitude": lon})
    data.to_dataset(name="lsm").to_netcdf(path, engine="netcdf4")
    return str(path)


def test_a_mask_from_a_file(tmp_path):
    values = np.random.default_rng(0).integers(0, 1001, (19, 36)).astype(np.int16)
    thousandths = landsea.from_file(mask_file(tmp_path / "a.nc", values))
    fractions = landsea.from_file(mask_file(tmp_path / "b.nc", values / 1000))
    torch.testing.assert_close(thousandths.fraction, fractions.fraction)
    assert bool(thousandths.land(torch.tensor(70.0), torch.tensor(-350.0))) == (values[2, 1] >= 500)
    assert landsea.choose("") is landsea.shipped()


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (np.full((19, 36), -1.0), "lies between 0 and 1"),
        (np.full((19, 36), np.nan), "lies between 0 and 1"),
        (np.full((19, 36), 5000.0), "lies between 0 and 1"),
        (np.zeros((19, 36)), "lies between 0 and 1"),
    ],
)
def test_a_mask_that_is_none(values, says, tmp_path):
    with pytest.raises(DataError, match=says):
        landsea.from_file(mask_file(tmp_path / "bad.nc", values))


def test_a_mask_of_a_region_or_another_variable(tmp_path):
    path = tmp_path / "bad.nc"
    mask_file(path, np.eye(19, 36))
    data = made.xr.open_dataset(path).load()
    data.close()
    data.isel(longitude=slice(4)).to_netcdf(tmp_path / "region.nc")
    with pytest.raises(DataError, match=r"region\.nc: a land-sea mask must cover the globe"):
        landsea.from_file(str(tmp_path / "region.nc"))
    data.rename(lsm="z").to_netcdf(tmp_path / "other.nc")
    with pytest.raises(DataError, match=r"other\.nc: expected the land-sea mask.*there is z"):
        landsea.from_file(str(tmp_path / "other.nc"))


def test_the_shipped_mask_is_the_published_one_thinned(data_root):
    path = data_root / "land_sea_mask" / "era5_lsm_0p25.nc"
    if not path.exists():
        pytest.skip(f"no {path}")
    full = landsea.from_file(str(path))
    assert full.fraction.shape == (721, 1440)
    assert torch.equal(full.fraction[:720:8, ::8] >= 0.5, landsea.shipped().fraction >= 0.5)


def test_a_real_file(data_root, tmp_path):
    path = data_root / "era5_uk" / "era5-2mt-2019-03-uk.grib"
    if not path.exists():
        pytest.skip(f"no {path}")
    weather = Weather.open(path)
    assert weather.grid == Grid(720, 128, -40, 33, 49)
    assert weather.grid.area == (58, -10, 50, 2)
    assert len(weather.schedule(0, 1)) == 744
    assert len(weather.schedule(12, 24)) == 31
    cut = tmp_path / "cut.grib"
    shutil.copyfile(path, cut)
    cut.chmod(0o644)
    with cut.open("r+b") as file:
        file.truncate(path.stat().st_size - 1000)
    with pytest.raises(DataError, match="truncated"):
        Weather.open(cut)
