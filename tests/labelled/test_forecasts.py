"""Forecasts, which go along two times, and times that are samples of their own."""

import numpy as np
import pytest

from ipot.data.argument_checks import bytes_of
from ipot.errors import DataError
from ipot.formats.inspection import inspect_series
from ipot.formats.series.description import split_series
from ipot.formats.series.latest_frames import to_batch
from ipot.formats.series.samples import from_xarray
from ipot.formats.xarray_files import open_series
from ipot.surrogate.forecast import asked_places, to_xarray

from .labelled_data import days, forecast, grid, truth, xr

HOURS = np.arange(5) * np.timedelta64(6, "h").astype("timedelta64[ns]")


def forecasts(count=4):
    """As GRIB files have them: a beginning, steps from there, and what each is valid for."""
    lat, lon = np.meshgrid((60.0, 50.0, 40.0), (0.0, 10.0, 20.0, 30.0), indexing="ij")
    values = np.stack([truth(np.arange(5) / 4, lat, lon, shift=i) for i in range(count)])
    return xr.Dataset(
        {"t2m": (("time", "step", "latitude", "longitude"), values, {"units": "K"})},
        coords={
            "time": days(count),
            "step": HOURS,
            "valid_time": (("time", "step"), days(count)[:, None] + HOURS),
            "latitude": [60.0, 50.0, 40.0],
            "longitude": [0.0, 10.0, 20.0, 30.0],
        },
    )


def test_windows_go_along_the_steps_of_each_forecast():
    data = forecasts()
    dataset, series = forecast(data, history=2, lead=2)
    assert (series.time, series.sample, len(dataset)) == ("step", "time", 4 * 2)
    frames = data.t2m.values.reshape(4, 5, -1)
    np.testing.assert_array_equal(dataset[5].values, frames[2, 1:3].T)
    np.testing.assert_array_equal(dataset[5].truth[..., 0], frames[2, 3:5])
    # What is held out begins at other times.
    learnt, rest = split_series(dataset, series, 0.75)
    assert (len(learnt), len(rest)) == (6, 2)
    same, _ = forecast(data, history=2, lead=2, time="step")
    assert len(same) == len(dataset)


def test_answers_say_when_each_forecast_began():
    data = forecasts()
    _, series = forecast(data, history=2, lead=2)
    batch = to_batch(series, data.isel(step=slice(0, 3)))
    last, labels = [f.last for f in batch], [f.label for f in batch]
    out = to_xarray(series, np.zeros((4, 2, 12, 1)), asked_places(series), last, labels)
    assert out.dims == ("time", "step", "latitude", "longitude")
    np.testing.assert_array_equal(out.time.values, data.time.values)
    np.testing.assert_array_equal(out.step.values, HOURS[3:])
    # One forecast alone, as a file of the newest has it.
    (alone,) = to_batch(series, data.isel(time=-1, step=slice(0, 3)))
    np.testing.assert_array_equal(alone.values, batch[-1].values)
    assert alone.last == HOURS[2]


@pytest.mark.parametrize("kept", [3, [3]])
def test_a_file_for_each_forecast(tmp_path, kept):
    pytest.importorskip("netCDF4")
    data = forecasts()
    for i in range(4):
        one = data.isel(time=i if isinstance(kept, int) else [i])
        one.to_netcdf(tmp_path / f"{9 - i}.nc", engine="netcdf4")
    found = open_series(tmp_path)
    np.testing.assert_array_equal(found.t2m.values, data.t2m.values)
    assert "4 time x 5 step" in inspect_series(tmp_path).variables[-1].shape
    assert len(forecast(found, history=2, lead=2)[0]) == 8


def test_members_of_forecasts_are_one_dimension_too_many():
    data = xr.concat([forecasts(), forecasts() + 1], dim="number")
    with pytest.raises(DataError, match=r"several along number.*ds.isel\(number=0\)"):
        forecast(data)
    assert len(forecast(data.isel(number=0), history=2, lead=2)[0]) == 8


def test_times_may_be_samples_of_their_own():
    data = grid(9).assign(u=2 * grid(9).t2m)
    dataset, series = from_xarray(data, inputs="t2m", targets="u", sample="time")
    assert (len(dataset), series.time, series.sample, series.lead) == (9, "", "time", 0)
    np.testing.assert_array_equal(dataset[4].truth[0], 2 * dataset[4].values)
    batch = to_batch(series, data[["t2m"]])
    assert len(batch) == 9
    out = to_xarray(series, np.zeros((9, 1, 12, 1)), asked_places(series), [f.last for f in batch])
    assert out.dims == ("time", "latitude", "longitude")
    np.testing.assert_array_equal(out.time.values, data.time.values)
    elsewhere, _ = from_xarray(
        data[["t2m"]], target_source=data[["u"]], inputs="t2m", targets="u", sample="time"
    )
    assert len(elsewhere) == 9
    with pytest.raises(DataError, match="there is no dimension of time: samples go along time"):
        from_xarray(data, inputs="t2m", targets="u", sample="time", history=2)


@pytest.mark.parametrize("memory", ["2MB", "2 mb", "2e6", "1953.125 KiB", 2e6, np.int64(2e6)])
def test_memory_in_words(memory):
    assert bytes_of("memory", memory) == 2_000_000


def test_memory_in_words_is_a_limit():
    dataset, series = forecast(grid(6000), memory="500kB")
    assert 1000 < len(dataset) < 5999
    assert "memory allows 0.0005 GB" in " ".join(series.notes)
