"""What cannot be learned from says so: which argument, and what to do."""

import numpy as np
import pytest

from ipot.errors import DataError
from ipot.formats.series.samples import from_xarray

from .labelled_data import days, grid, stations, xr


def refused(data, match, **options):
    with pytest.raises(DataError, match=match):
        from_xarray(data, **{"inputs": "t2m", "targets": "t2m", **options})


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"history": 0}, "history must be at least 1"),
        ({"lead": -1}, "lead must be at least 0"),
        ({"every": 0}, "every must be at least 1"),
        ({"stride": 0}, "stride must be at least 1"),
        ({"max_samples": 0}, "max_samples must be at least 1"),
        ({"history": 15, "lead": 6}, r"no window of 15 frames in and 6 out.*20 frames"),
        ({"inputs": "rain"}, "inputs names 'rain'; there is t2m"),
        ({"targets": ("t2m", "t2m")}, "targets names a variable twice"),
        ({"time": "when"}, "time='when' is no dimension; there are time, latitude"),
        ({"sample": "case"}, "sample='case' is no dimension"),
        ({"space": ("x", "y")}, "space names 'x'; t2m has the coordinates latitude, longitude"),
        ({"space": ("latitude",)}, "space names no coordinate along longitude"),
        ({"memory": 1000}, r"one sample takes .* memory"),
        ({"memory": 0}, "memory must be a number of bytes"),
        ({"memory": "1XB"}, "memory must be a number of bytes, like 2e9 or '2GB', got '1XB'"),
        ({"time": "time", "sample": "time"}, "time and sample both say 'time': give sample="),
        ({"static": "lsm"}, "static names 'lsm'; there is t2m"),
    ],
)
def test_arguments(options, match):
    refused(grid(20), match, **options)


@pytest.mark.plain
@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"history": "7"}, r"history must be a whole number like history=7, got '7' \(str\)"),
        ({"history": 1.5}, "history must be a whole number"),
        ({"lead": 0.5}, "lead must be a whole number"),
        ({"lead": True}, "lead must be a whole number"),
        ({"every": None}, "every must be a whole number"),
        ({"stride": "1"}, "stride must be a whole number"),
        ({"max_samples": 1e3}, "max_samples must be a whole number"),
        ({"memory": "lots"}, "memory must be a number of bytes"),
        ({"memory": [1]}, "memory must be a number of bytes"),
        ({"memory": float("nan")}, "memory must be a number of bytes"),
        ({"season": "yes"}, "season must be True or False"),
        ({"time": 0}, "time must be the name of a dimension"),
        ({"sample": ["a"]}, "sample must be the name of a dimension"),
        ({"space": 3}, "space must be a name or a list of names, got 3"),
        ({"static": [3]}, "static must be a name or a list of names, got 3"),
        ({"inputs": 3}, "inputs must be a name or a list of names, got 3"),
    ],
)
def test_arguments_of_other_types(options, match):
    refused(grid(20), match, **options)


def test_sources_of_another_kind():
    refused(np.zeros((3, 3)), "source must be an xarray Dataset or DataArray")
    refused(grid(5), "target_source must be", target_source=[1])


def test_variables_must_be_named_where_there_are_several():
    data = grid(5, variables=("u", "v"))
    refused(data, "inputs must name variables; there are u, v", inputs=None)


def test_names_and_labels_are_no_numbers():
    data = grid(5).assign(station_name=(("time", "latitude", "longitude"), np.full((5, 3, 4), "a")))
    refused(data, "station_name must hold real numbers", inputs="station_name")
    parts = xr.concat([grid(5), grid(5)], dim="component").assign_coords(component=["u", "v"])
    refused(parts, "component is .* and not numbers")


@pytest.mark.parametrize("what", ["inputs", "targets"])
def test_a_variable_without_values_is_named(what):
    data = grid(5).assign(rain=grid(5).t2m * np.nan)
    refused(data, "rain has no finite value", **{what: "rain"})


def test_values_that_never_come_together():
    data = grid(8, variables=("u", "v"))
    data["u"][::2], data["v"][1::2] = np.nan, np.nan
    refused(data, r"all 7 samples miss.*u, v", inputs=("u", "v"), targets="u")


def test_times():
    data = grid(6)
    twice = data.assign_coords(time=days(6)[[0, 1, 2, 2, 3, 4]])
    refused(twice, r"time has 2020-01-03.* twice .*drop_duplicates")
    late = days(6).copy()
    late[3] += np.timedelta64(7, "h")
    refused(data.assign_coords(time=late), r"not regular: most frames are 1 day apart.*2020-01-04")
    late[3] = np.datetime64("NaT")
    refused(data.assign_coords(time=late), r"1 of 6 times missing \(NaT\)")
    refused(data.assign_coords(time=list("abcdef")), "time must hold times")
    refused(data.assign_coords(time=[0, 1, 2, np.nan, 4, 5]), "not finite")
    refused(
        data, "different kinds", target_source=data.assign_coords(time=np.arange(6.0)), inputs="t2m"
    )
    steps = xr.concat([data, data], dim="valid_time").assign_coords(valid_time=days(2))
    refused(steps, r"several dimensions: valid_time, time.*ds.isel.*time=.*sample=")


def test_places():
    refused(stations(5).drop_vars(["lat", "lon", "station"]), "station and no coordinates")
    refused(grid(5, latitudes=(100.0, 90.0, 80.0)), "latitude runs from 80 to 100")
    refused(grid(5, longitudes=(0.0, 1.0, np.nan, 2.0)), "longitude holds 1 values")
    for name, count in (("longitude", 4), ("latitude", 3)):
        for odd in (np.full(count, "a", object), np.zeros(count, [("x", "f8"), ("y", "f4")])):
            refused(grid(5).assign_coords({name: (name, odd)}), f"{name} is .* and not numbers")
    mixed = grid(5).assign(v=(("time", "station"), np.ones((5, 2))))
    mixed = mixed.assign_coords(lat=("station", [1.0, 2.0]), lon=("station", [1.0, 2.0]))
    refused(mixed, r"v is on \(station\) and t2m on \(latitude, longitude\)", inputs=("t2m", "v"))
    plane = grid(5, names=("time", "y", "x"))
    refused(stations(5), r"both need longitude and latitude, or neither", target_source=plane)


def test_samples():
    steady = xr.concat([grid(1), grid(1)], dim="case").isel(time=0, drop=True)
    refused(steady, "history, lead, every, stride and season are of time", history=2)
    refused(steady, "are of time", lead=2)
    refused(steady.isel(case=0), "no dimension of time or of samples among latitude, longitude")
    more = xr.concat([steady.isel(case=0)] * 3, dim="case")
    refused(steady, "inputs have 2 samples and targets 3", target_source=more)
    refused(steady, "both need time", target_source=grid(5))
    refused(grid(5).assign(one=3.0), "one has neither places nor time", inputs=("t2m", "one"))
    fixed = grid(5).assign(height=(("latitude", "longitude"), np.ones((3, 4))))
    refused(fixed, "inputs have no dimension of time", inputs="height")
    refused(fixed, "targets must have places and time; height", targets=("t2m", "height"))
    empty = grid(5).isel(time=slice(0, 0))
    refused(empty, "t2m is empty: time has no entries")
    refused(grid(5).isel(latitude=slice(0, 0)), "t2m is empty: latitude has no entries")


@pytest.mark.filterwarnings("ignore:Duplicate dimension names")
def test_a_variable_with_a_dimension_twice():
    data = grid(20)
    rows = data.sizes["latitude"]
    data["errors"] = (("time", "latitude", "latitude"), np.ones((20, rows, rows)))
    refused(data, r"errors has a dimension twice \(time, latitude, latitude\)", inputs="errors")
