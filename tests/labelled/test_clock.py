"""Times of any century are counted right: nanoseconds end in the year 2262."""

import numpy as np
import pytest

from ipot.errors import DataError
from ipot.formats.series.clock import find_clock, kind_of, season
from ipot.formats.series.latest_frames import to_batch
from ipot.formats.series.samples import from_xarray
from ipot.surrogate.forecast import to_xarray

from .labelled_data import grid

DAY = np.timedelta64(1, "D")


def day(time):
    """The day of a time, as text: numpy compares in the finer unit, where both may wrap around."""
    return str(np.asarray(time).astype("datetime64[D]"))


def days(first, count=8, unit="s"):
    return (np.datetime64(first, "D") + np.arange(count) * DAY).astype(f"datetime64[{unit}]")


@pytest.mark.parametrize(
    ("first", "unit"), [("1420-05-26", "s"), ("3000-01-01", "us"), ("2020-01-01", "ns")]
)
def test_days_of_any_century_are_a_day_apart(first, unit):
    times = days(first, unit=unit)
    clock = find_clock(times, "time")
    assert str(clock) == "1 day"
    assert clock.count(times, times[0]).tolist() == list(range(8))
    assert day(clock.after(times[-1], 1)) == day(np.datetime64(first) + 8 * DAY)
    assert day(clock.after(times[-1], -3)) == day(times[-4])


def test_frames_may_be_further_apart_than_nanoseconds_reach():
    times = np.array(["1690-01-01", "1990-01-01", "2250-01-01"], "datetime64[ns]")
    clock = find_clock(times[[0, 2]], "time")
    assert clock.count(times[[0, 2]], times[0]).tolist() == [0, 1]
    assert day(clock.after(times[2], 1)) == "2810-01-01"
    assert season(times[:1], "dates")[0] == pytest.approx(-2 * np.pi * 109572 / 365.25)


def test_a_step_may_lead_beyond_nanoseconds():
    times = days("2262-04-01", unit="ns")
    clock = find_clock(times, "time")
    assert day(clock.after(times[-1], 30)) == "2262-05-08"
    months = np.array(["2262-01-01", "2262-02-01", "2262-03-01"], "datetime64[ns]")
    assert day(find_clock(months, "time").after(months[-1], 12)) == "2263-03-01"


def test_parts_of_a_second_count():
    times = np.datetime64("1420-01-01", "ms") + np.arange(5) * np.timedelta64(250, "ms")
    clock = find_clock(times, "time")
    assert clock.step == 0.25
    assert clock.count(times, times[0]).tolist() == list(range(5))


def test_dates_that_nobody_can_add_to_are_refused_by_name():
    far = np.array([0, 2**62], "datetime64[s]")
    with pytest.raises(DataError, match=r"^when goes from 1970.* check its units"):
        kind_of(far, "when")
    with pytest.raises(DataError, match="more than a date can hold"):
        find_clock(days("3000-01-01"), "time").after(days("3000-01-01")[0], 10**9)


@pytest.mark.parametrize("first", ["1420-05-26", "2019-01-01"])
def test_a_series_of_another_century_is_answered_in_it(first):
    data = grid(12)
    data = data.assign_coords(time=days(first, 12))
    made, series = from_xarray(data, inputs="t2m", targets="t2m", history=2, lead=1)
    frames = to_batch(series, data)[0]
    answer = to_xarray(series, made[0].targets.numpy(), series.places, frames.last)
    assert day(answer.time.values[0]) == day(np.datetime64(first) + 12 * DAY)
    assert day(answer.forecast_reference_time.values) == day(np.datetime64(first) + 11 * DAY)
