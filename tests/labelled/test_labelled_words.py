"""What a series says of its times: what comes in and out at which, and times that can be read."""

import re

import numpy as np
import pytest

xr = pytest.importorskip("xarray")

from ipot.errors import DataError  # noqa: E402
from ipot.formats.series.clock import said  # noqa: E402
from ipot.formats.series.description import Series  # noqa: E402
from ipot.formats.series.latest_frames import to_batch  # noqa: E402
from ipot.formats.series.samples import from_xarray  # noqa: E402
from labelled.labelled_data import days, grid, stations  # noqa: E402

NANOSECONDS = re.compile(r"\.0{6,}|T00:00")


def test_what_comes_in_and_out_at_which_times():
    data, series = from_xarray(grid(40), inputs="t2m", targets="t2m", history=7, lead=7)
    wanted = (
        "in: t2m at t-6 d .. t (7 frames, every 1 day)",
        "out: t2m at t+1 d .. t+7 d (7 frames, every 1 day)",
    )
    assert series.lines() == wanted
    assert tuple(data.describe()[1:]) == wanted
    assert tuple(data.select([0, 3]).describe()[1:]) == wanted
    assert Series.from_dict(series.as_dict()).lines() == wanted
    hours = np.datetime64("2020-01-01T00", "ns") + 6 * np.arange(30) * np.timedelta64(1, "h")
    data = grid(30, times=hours)
    _, series = from_xarray(data, inputs="t2m", targets="t2m", history=2, every=2, season=True)
    assert series.lines() == (
        "in: t2m at t-12 h .. t (2 frames, every 12 hours); the time of the year",
        "out: t2m at t+12 h (1 frame)",
    )


def test_stations_to_a_grid_are_no_forecast_unless_a_lead_is_said():
    data, series = from_xarray(stations(10), inputs="t2m", target_source=grid(10))
    assert series.lead == 0
    assert len(data) == 10
    assert series.lines() == (
        "in: t2m at t (1 frame)",
        "out: t2m at t, the time of the last frame in",
    )
    assert data.spec.inputs == ("t2m(t)",)
    assert from_xarray(stations(10), inputs="t2m", target_source=grid(10), lead=2)[1].lead == 2
    assert from_xarray(grid(10), inputs="t2m", targets="t2m")[1].lead == 1


def test_what_goes_in_and_comes_out_at_one_time_is_remarked_on():
    _, series = from_xarray(grid(10), inputs="t2m", targets="t2m", history=3, lead=0)
    assert any("t2m: goes in and comes out at the same time" in note for note in series.notes)
    _, series = from_xarray(grid(10), inputs="t2m", targets="t2m", history=3, lead=1)
    assert series.notes == ()


def test_times_in_messages_have_no_zeros_behind_them():
    with pytest.raises(DataError, match=r"from 2020-01-01 to 2020-01-05\. history=5") as error:
        from_xarray(grid(5, times=days(5)), inputs="t2m", targets="t2m", history=5)
    assert not NANOSECONDS.search(str(error.value))
    _, series = from_xarray(grid(9), inputs="t2m", targets="t2m", history=2)
    with pytest.raises(DataError, match="up to 2020-01-09; that of 2020-01-08 is missing"):
        to_batch(series, grid(9).isel(time=[0, 8]))
    twice = grid(9).isel(time=[0, 1, 2, 2])
    with pytest.raises(DataError, match="time has 2020-01-03 twice"):
        from_xarray(twice, inputs="t2m", targets="t2m")
    assert said(np.datetime64("2020-01-01T06:30", "ns")) == "2020-01-01 06:30"
    assert said(np.timedelta64(36, "h").astype("m8[ns]")) == "36 hours"
    assert said(np.timedelta64(2, "D").astype("m8[ns]")) == "2 days"
    assert said(7) == "7"
