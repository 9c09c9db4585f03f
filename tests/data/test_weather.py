"""Files of weather: every dialect gives the same numbers."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from ipot.data import gridded
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
        made.read_all(path)


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
